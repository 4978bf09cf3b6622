package spec

import (
	"strings"
	"unicode/utf8"
)

// tabIndent finds the first line with a tab in its indentation. It searches
// from the place onwards, because the YAML library fails on the line before the
// tab.
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

// tabHere returns the place if a tab is there, e.g. after a hyphen or a colon.
func (r *reader) tabHere(at place) (place, string) {
	text := []rune(r.src.lines[at.line-1])
	if at.column > utf8.RuneCountInString(r.src.lines[at.line-1]) || text[at.column-1] != '\t' {
		return place{}, ""
	}
	return at, "this is a tab; use a space"
}
