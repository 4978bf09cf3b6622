// Package plainword defines which characters are allowed in values that hostler
// writes into guests' files for shells and apt. The check of the configuration
// and the code that writes user-data both use this package, so that they refuse
// the same values.
package plainword

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Refused names the forbidden characters, which have a special meaning in
// /etc/environment or sources.list.
const Refused = "blanks, quotes, control characters or one of # $ \\ ` ;"

// Is reports whether a value is allowed in such files.
func Is(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("\"'#$\\`;", r)
	})
}
