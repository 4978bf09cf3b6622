package fault

import (
	"fmt"
	"slices"
	"strings"
)

// maxListed is the largest number of reasons in a message.
const maxListed = 20

// List joins reasons for a message and cuts a long list: "a; b; … and 980
// more". It does not change the reasons themselves.
func List(reasons []string, separator string) string {
	if more := len(reasons) - maxListed; more > 0 {
		reasons = append(slices.Clone(reasons[:maxListed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, separator)
}

// Clip shortens a client's text before an answer or a log line repeats it.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
