package rpc

import (
	"strings"
	"unicode"
)

// maxMessage bounds, in bytes, what of a foreign message is passed on.
const maxMessage = 1024

// Clean makes text from libvirt or a guest fit for a log or a terminal: one line, no
// control characters, bounded.
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

// printable drops what a terminal would act upon.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case !unicode.IsPrint(r):
		return -1
	}
	return r
}
