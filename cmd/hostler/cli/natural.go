package cli

import (
	"cmp"
	"strings"
)

// natural compares names, and the numbers in names by value, e.g. node-2 before
// node-10.
func natural(a, b string) int {
	whole := strings.Compare(a, b)
	for a != "" && b != "" {
		x, restA := leading(a)
		y, restB := leading(b)
		if isDigit(x[0]) && isDigit(y[0]) {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
		} else if c := strings.Compare(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// leading splits s after its first run of digits or of other characters.
func leading(s string) (run, rest string) {
	n := 1
	for n < len(s) && isDigit(s[n]) == isDigit(s[0]) {
		n++
	}
	return s[:n], s[n:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
