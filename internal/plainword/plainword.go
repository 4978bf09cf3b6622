// Package plainword defines the characters of values that go into guests' files
// which shells and apt read. Both the check of the configuration and the code
// that writes user-data use it, so they refuse the same values.
package plainword

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Refused names the forbidden characters. They would have a meaning in
// /etc/environment and sources.list.
const Refused = "blanks, quotes, control characters or one of # $ \\ ` ;"

// Is reports whether a value may go into such files.
func Is(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("\"'#$\\`;", r)
	})
}
