package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// clean makes text from a guest safe to print. It escapes control characters,
// invalid bytes and the marks that reorder displayed text. It keeps newlines
// and tabs if multiline is set.
func clean(s string, multiline bool) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case multiline && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case hidden(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// line cleans a text for a single line of output.
func line(s string) string { return clean(s, false) }

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// hidden reports whether a rune changes a terminal's display without being
// visible. Such runes are controls, format characters (e.g. bidirectional
// overrides) and line separators. The joiners that scripts and emoji need are
// not hidden.
func hidden(r rune) bool {
	if r == '\u200c' || r == '\u200d' {
		return false
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// cells returns the number of terminal columns of s.
func cells(s string) int {
	if isPlain(s) {
		return len(s)
	}
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// cut shortens s to at most limit columns, and ends the shortened text with
// "…".
func cut(s string, limit int) string {
	if limit < 1 || cells(s) <= limit {
		return s
	}
	n := 0
	for i, r := range s {
		c := runeCells(r)
		if n+c > limit-1 {
			return s[:i] + "…"
		}
		n += c
	}
	return s
}

// pad appends spaces to s up to the given number of columns.
func pad(s string, columns int) string {
	if n := columns - cells(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// count returns a number with its noun, e.g. "1 machine" or "2 machines".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size formats a number of bytes in binary units, e.g. 512MiB or 1.5GiB.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f /= 1024
		u++
	}
	s := strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	return s + units[u]
}
