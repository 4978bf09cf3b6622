package spec

import (
	"strings"
)

// suggestion returns the end of a message about an unknown word. It proposes
// meant, or lists the known words if meant is "".
func suggestion(meant string, known []string) string {
	if meant != "" {
		return "; did you mean " + quote(meant) + "?"
	}
	if len(known) == 0 {
		return ""
	}
	return "; known are: " + strings.Join(known, ", ")
}
