package spec

import (
	"errors"
	"slices"
	"strconv"
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

// mendBoolean returns a hint for a boolean that is written in another way, e.g.
// yes, or "".
func mendBoolean(n *node) string {
	switch word := strings.ToLower(n.value); {
	case n.kind == text && (n.value == "true" || n.value == "false"):
		return "; remove the quotes"
	case slices.Contains([]string{"true", "yes", "on"}, word):
		return "; write true"
	case slices.Contains([]string{"false", "no", "off"}, word):
		return "; write false"
	}
	return ""
}

// mendNumber returns a hint for a whole number that is written in another way,
// or "". err is the error of strconv.Atoi().
func mendNumber(n *node, err error) string {
	switch {
	case n.kind == text && isDigits(n.value):
		return "; remove the quotes"
	case errors.Is(err, strconv.ErrRange):
		return ", which is too large"
	case n.kind == number:
		return "; write digits only, without a zero in front"
	}
	return ""
}
