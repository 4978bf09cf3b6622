package spec

import (
	"strings"
	"unicode/utf8"
)

// tabIndent finds the next line from the place on whose indentation holds a
// tab: the YAML reader gives up on the line before it.
func (r *reader) tabIndent(at place) (place, string) {
	for i := at.line - 1; i < len(r.src.lines); i++ {
		text := r.src.lines[i]
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if tab := strings.Index(indent, "\t"); tab >= 0 && strings.TrimSpace(text) != "" {
			return place{i + 1, tab + 1}, ""
		}
	}
	return place{}, ""
}

// tabHere says so where the place is that of a tab after a hyphen or a colon.
func (r *reader) tabHere(at place) (place, string) {
	text := []rune(r.src.lines[at.line-1])
	if at.column > utf8.RuneCountInString(r.src.lines[at.line-1]) || text[at.column-1] != '\t' {
		return place{}, ""
	}
	return at, "a tab stands here; use a space"
}
