package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxErrors is the maximum number of errors that are reported for a file. It
// also limits the work to find them, because a hostile file could have an error
// per byte.
const maxErrors = 100

// Error is a fault in a file and its place. Line and Column are numbered from
// 1, and Column is in characters. Line 0 means the file as a whole.
type Error struct {
	File         string
	Line, Column int
	// Field is the path in the document, e.g. machines.web.memory. It is empty if
	// the text could not be parsed that far.
	Field string
	// Message says what is wrong and how to correct it.
	Message string
	// Excerpt is the line with a caret under the column. It is empty for places
	// inside user-data, which may hold secrets.
	Excerpt string
}

// Error returns the place and the message, then the excerpt.
func (e *Error) Error() string {
	if e.Excerpt == "" {
		return e.summary()
	}
	return e.summary() + "\n" + e.Excerpt
}

// summary returns the place and the message in one line, without the excerpt.
func (e *Error) summary() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	return s + ": " + e.Message
}

// Errors are all faults found in a file, sorted by position.
type Errors []*Error

// Error prints one block per error.
func (es Errors) Error() string { return es.join("\n", (*Error).Error) }

// summary prints one line per error, without excerpts. It is for logs and
// notices.
func (es Errors) summary() string { return es.join("\n", (*Error).summary) }

// Summary returns the text of an error without excerpts of files, which may
// hold passwords. It is for logs and for answers to users with read access.
func Summary(err error) string {
	var es Errors
	if !errors.As(err, &es) {
		return err.Error()
	}
	return strings.Replace(err.Error(), es.Error(), es.summary(), 1)
}

func (es Errors) join(sep string, text func(*Error) string) string {
	parts := make([]string, len(es))
	for i, e := range es {
		parts[i] = text(e)
	}
	return strings.Join(parts, sep)
}

// sorted returns the errors in the order of their positions. It keeps at most
// maxErrors; if there are more, a last error says so.
func (es Errors) sorted(file string) Errors {
	slices.SortStableFunc(es, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if len(es) <= maxErrors {
		return es
	}
	next := es[maxErrors]
	more := &Error{File: file, Line: next.Line, Column: next.Column, Message: "there are more errors; fix these first"}
	return append(es[:maxErrors:maxErrors], more)
}

// source is the text of a file, for excerpts.
type source struct {
	file  string
	lines []string
}

func newSource(file, text string) *source {
	return &source{file: file, lines: strings.Split(text, "\n")}
}

// excerptWidth is the maximum length of an excerpt's line, in characters.
const excerptWidth = 100

// excerpt returns a line with a caret under the column, or "" if the source
// does not have that line.
func (s *source) excerpt(line, column int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	text := strings.TrimRight(s.lines[line-1], "\r")
	start := 0 // in bytes; skips text that would push the caret out of sight
	for skip := column - excerptWidth*3/4; skip > 0 && start < len(text); skip-- {
		_, n := utf8.DecodeRuneInString(text[start:])
		start += n
		column--
	}
	shown := make([]rune, 0, excerptWidth)
	for _, r := range text[start:] {
		if len(shown) == excerptWidth {
			shown[len(shown)-1] = '…'
			break
		}
		shown = append(shown, printable(r))
	}
	if start > 0 && len(shown) > 0 {
		shown[0] = '…'
	}
	number := strconv.Itoa(line)
	blank := strings.Repeat(" ", len(number))
	top := strings.TrimRight(fmt.Sprintf("  %s | %s", number, string(shown)), " ")
	return fmt.Sprintf("%s\n  %s | %s^", top, blank, strings.Repeat(" ", max(column-1, 0)))
}

// printable replaces characters that would move the caret from its column or
// control the terminal.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return '→'
	case isControl(r) || r == utf8.RuneError:
		return '?'
	}
	return r
}

// isControl reports whether a character is never part of text. These are
// control characters, Unicode's noncharacters at the end of each plane, and
// invisible characters that change the displayed text, e.g. U+202E.
func isControl(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 ||
		r&0xfffe == 0xfffe || r == 0x2028 || r == 0x2029 || r == 0xfeff || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// quote quotes a piece of the input for a message and shortens long text.
func quote(s string) string { return strconv.Quote(shorten(s)) }

// quoteless returns the same as quote() without the quotes, for text known to
// be plain.
func quoteless(s string) string { return shorten(s) }

func shorten(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
