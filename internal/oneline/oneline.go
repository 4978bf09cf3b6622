// Package oneline cleans foreign text for display.
package oneline

import (
	"strings"
	"unicode"
)

// Clean makes text of a guest or a hypervisor fit for a log or a terminal. The
// result is a single line without control characters, of at most limit bytes
// and an ellipsis.
func Clean(text string, limit int) string {
	fields := strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return r == '\n' || r == '\r' })
	for i, f := range fields {
		fields[i] = strings.TrimSpace(strings.Map(printable, f))
	}
	text = strings.Join(fields, "; ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// maxLine bounds a line of Lines, in bytes.
const maxLine = 512

// Lines returns the lines of text that are not blank, each cleaned.
func Lines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = Clean(line, maxLine); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Last joins the last n lines, e.g. to "rc.local failed; power down".
func Last(lines []string, n int) string {
	return strings.Join(lines[max(len(lines)-n, 0):], "; ")
}

// printable drops the characters that control a terminal.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case !unicode.IsPrint(r):
		return -1
	}
	return r
}
