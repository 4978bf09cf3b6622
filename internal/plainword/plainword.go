// Package plainword says which characters may stand in a value that goes into
// files of guests which shells and apt read, so that what is refused when it is
// configured and what is refused when a guest is told of it is the same.
package plainword

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Refused names what may not stand in such a value: in /etc/environment and
// sources.list it would mean something.
const Refused = "blanks, quotes, control characters or one of # $ \\ ` ;"

// Is reports whether a value may go into such files.
func Is(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("\"'#$\\`;", r)
	})
}
