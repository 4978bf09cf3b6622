package fault

import (
	"fmt"
	"slices"
	"strings"
)

// maxListed is the largest number of reasons in a message.
const maxListed = 20

// List joins reasons for a message and cuts a long list, e.g. to "a; b; and 980
// more". It does not modify the slice.
func List(reasons []string, separator string) string {
	if more := len(reasons) - maxListed; more > 0 {
		reasons = append(slices.Clone(reasons[:maxListed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, separator)
}

// Clip shortens s to at most n bytes and an ellipsis. It serves for a client's
// text that an answer or a log line repeats.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
