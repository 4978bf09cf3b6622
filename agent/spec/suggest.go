package spec

import (
	"strings"
)

// suggestion is the end of a message about a word that is not known: the one
// that was meant, or else all that are known.
func suggestion(meant string, known []string) string {
	if meant != "" {
		return "; did you mean " + quote(meant) + "?"
	}
	if len(known) == 0 {
		return ""
	}
	return "; known are: " + strings.Join(known, ", ")
}
