// Package near finds the known word that a mistyped word resembles, e.g.
// "machines" for "machnies".
package near

import (
	"slices"
	"strings"
)

// Word returns the known word that is closest to word, or "" if no known word
// is close.
func Word(word string, known []string) string {
	best, distance := "", 3
	if len(word) > 64 {
		return ""
	}
	normal := Normal(word)
	for _, k := range known {
		if Normal(k) == normal {
			return k
		}
		limit := min(distance, (len(k)+1)/2)
		if n := editDistance(word, k); n < limit {
			best, distance = k, n
		}
	}
	return best
}

// Normal maps words that differ only in case, hyphens, underscores, blanks or a
// plural s to the same text.
func Normal(s string) string {
	s = strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(s))
	return strings.TrimSuffix(s, "s")
}

// editDistance returns the number of characters to add, remove, change or swap
// to turn a into b.
func editDistance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = slices.Min([]int{row[j] + 1, last[j+1] + 1, last[j] + change})
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
