package spec

import (
	"strings"
	"unicode/utf8"
)

// tabIndent finds the first line from the place on with a tab in its
// indentation: the YAML library fails on the line before it.
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

// tabHere reports a tab at the place, e.g. after a hyphen or a colon.
func (r *reader) tabHere(at place) (place, string) {
	text := []rune(r.src.lines[at.line-1])
	if at.column > utf8.RuneCountInString(r.src.lines[at.line-1]) || text[at.column-1] != '\t' {
		return place{}, ""
	}
	return at, "this is a tab; use a space"
}
