package rpc

import (
	"strings"
	"unicode"
)

// maxMessage bounds, in bytes, what of a foreign message is passed on.
const maxMessage = 1024

// Clean drops what a terminal would act upon and bounds the rest.
func Clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return strings.TrimSpace(text)
}
