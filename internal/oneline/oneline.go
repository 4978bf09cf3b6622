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
