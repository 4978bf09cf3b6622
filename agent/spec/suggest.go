package spec

import (
	"strings"
)

// suggestion is the end of a message about an unknown word: the probably
// intended word, or else all known words.
func suggestion(meant string, known []string) string {
	if meant != "" {
		return "; did you mean " + quote(meant) + "?"
	}
	if len(known) == 0 {
		return ""
	}
	return "; known are: " + strings.Join(known, ", ")
}
