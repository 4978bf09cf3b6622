package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// syntaxMends turns messages of the YAML library into advice for the user. An
// entry applies if the message contains its text says; the first such entry is
// used. If find is set, it may return a better place and a better text. Line 0
// or "" means that there is no better one.
var syntaxMends = []struct {
	says, mend string
	find       func(*reader, place) (place, string)
}{
	{"tab character", "a tab is used for indentation; use spaces", (*reader).tabIndent},
	{"mapping values are not allowed", "a colon is not expected here; check the indentation of this line and the lines before it, and put text with a colon in quotes", (*reader).colonBefore},
	{"unexpected end of stream", "a quotation mark is opened and never closed; close it", (*reader).openQuote},
	{"unexpected document indicator", "a quotation mark is opened and never closed; close it", (*reader).openQuote},
	{"did not find expected ',' or ']'", "a list is opened with [ and not closed; add the missing ] or ,", (*reader).openBracket},
	{"did not find expected ',' or '}'", "a map is opened with { and not closed; add the missing } or ,", (*reader).openBracket},
	{"could not find expected ':'", "a colon is missing: every line of a map is a key, a colon, a space and a value", nil},
	{"did not find expected key", "a key is expected here; check the indentation, which must match the lines of the same map, and put text with quotation marks or braces in quotes", (*reader).closedBracket},
	{"did not find expected '-' indicator", "an entry of a list is expected here, beginning with \"- \"; check the indentation", nil},
	{"block sequence entries are not allowed", "a list cannot begin here; put its first \"- \" on a separate line", nil},
	{"cannot start any token", "a value cannot begin with this character; put it in quotes", (*reader).tabHere},
	{"unknown escape character", "this escape (\\) is not known; in double quotes write \\\\ for a backslash, or use single quotes", nil},
	{"did not find expected comment or line break", "after | or > only a comment may stand on the line; begin the text on the next line", nil},
	{"did not find expected node content", "a value is expected here", (*reader).bracketOrColon},
}

var (
	unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
	yamlLine      = regexp.MustCompile(`^line (\d+): `)
	jsonStart     = regexp.MustCompile(`^\s*\{\s*"`)
	noSpace       = regexp.MustCompile(`^\s*(?:- )?[A-Za-z][A-Za-z0-9_-]*:(\S)`)
	openQuote     = regexp.MustCompile(`(?:^|[\s\[{,])(["'])`)
	bareColon     = regexp.MustCompile(`[\[{,:]\s*(:)`)
	quoted        = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|(?:^|\s)#.*`)
)

// place is a position in the document. Lines and columns are numbered from 1,
// and columns are in characters. The zero value means no place.
type place struct{ line, column int }

// syntax reports a YAML syntax error. The YAML library reports the line on
// which the surrounding value starts, and no column. So the place is derived
// from the number of bytes that the library read before it failed.
func (r *reader) syntax(content []byte, err error) {
	var wrong *json.SyntaxError
	if jsonStart.Match(content) && errors.As(json.Unmarshal(content, new(any)), &wrong) {
		at := r.at(int(wrong.Offset) - 1)
		r.fail(at.line, at.column, "the JSON is invalid here: %v", wrong)
		return
	}
	says := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := unknownAnchor.FindStringSubmatch(says); m != nil {
		at := r.word("*" + m[1])
		r.fail(at.line, at.column, noAliases)
		return
	}
	at := r.gaveUp(content)
	line := r.src.lines[at.line-1]
	if indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(indent, "\t") {
		r.fail(at.line, strings.Index(indent, "\t")+1, "a tab is used for indentation; use spaces")
		return
	}
	if strings.Contains(says, "exceeded max depth") {
		at = r.tooDeep(at)
		r.deep(maxDepth+1, at.line, at.column)
		return
	}
	if m := yamlLine.FindStringSubmatch(says); m != nil && strings.Contains(says, "could not find expected ':'") {
		n, _ := strconv.Atoi(m[1]) // here the library names the right line
		n = min(n, len(r.src.lines))
		at = place{n, len(r.src.lines[n-1]) - len(strings.TrimLeft(r.src.lines[n-1], " ")) + 1}
	}
	for _, m := range syntaxMends {
		if !strings.Contains(says, m.says) {
			continue
		}
		mend := m.mend
		if m.find != nil {
			if better, words := m.find(r, at); better.line > 0 {
				at, mend = better, words
			}
		}
		if mend == "" {
			mend = m.mend
		}
		r.fail(at.line, at.column, "%s", mend)
		return
	}
	r.fail(at.line, at.column, "cannot read the YAML here: %s", yamlLine.ReplaceAllString(says, ""))
}

// countingReader returns one byte at a time and counts them.
type countingReader struct {
	content []byte
	read    int
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	if c.read == len(c.content) || len(p) == 0 {
		return 0, io.EOF
	}
	p[0] = c.content[c.read]
	c.read++
	return 1, nil
}

// lookahead is the number of characters that the YAML library reads beyond the
// start of the faulty token.
const lookahead = 4

// gaveUp returns the start of the word at which the YAML library failed.
func (r *reader) gaveUp(content []byte) place {
	counter := &countingReader{content: content}
	var ignored yaml.Node
	_ = yaml.NewDecoder(counter).Decode(&ignored) // fails as it did the first time
	at := max(counter.read-lookahead, 0)
	if counter.read == len(content) {
		at = len(content) - 1
	}
	blank := func() bool { return strings.IndexByte(" \t\r\n", content[at]) >= 0 }
	for at > 0 && blank() && content[at] != '\t' {
		at--
	}
	if at > 0 && content[at] == ':' {
		at-- // moves into the key
	}
	for at > 0 && strings.IndexByte(" \t\r\n[{,", content[at-1]) < 0 && !blank() {
		at--
	}
	return r.at(at)
}

// at turns an offset in bytes into a place.
func (r *reader) at(offset int) place {
	line := 1
	for line < len(r.src.lines) && offset > len(r.src.lines[line-1]) {
		offset -= len(r.src.lines[line-1]) + 1
		line++
	}
	text := r.src.lines[line-1]
	return place{line, utf8.RuneCountInString(text[:min(max(offset, 0), len(text))]) + 1}
}

// word returns the first place of the word where a value may begin, or line 1,
// column 1 if there is none.
func (r *reader) word(word string) place {
	for i, text := range r.src.lines {
		for from := 0; ; {
			at := strings.Index(text[from:], word)
			if at < 0 {
				break
			}
			at += from
			if at == 0 || strings.IndexByte(" \t[{,", text[at-1]) >= 0 {
				return place{i + 1, utf8.RuneCountInString(text[:at]) + 1}
			}
			from = at + 1
		}
	}
	return place{1, 1}
}

// colonBefore looks at the line of the place and the line before it. It finds a
// colon that lacks the space after it, which makes the next colon invalid.
func (r *reader) colonBefore(at place) (place, string) {
	for i := at.line - 1; i >= max(at.line-2, 0); i-- {
		text := r.src.lines[i]
		if m := noSpace.FindStringSubmatchIndex(text); m != nil && !strings.Contains(text, ": ") {
			return place{i + 1, m[2] + 1}, "a space is missing after the colon"
		}
	}
	return place{}, ""
}

// openQuote finds the last quotation mark that opens a value and is not closed
// on its line.
func (r *reader) openQuote(place) (place, string) {
	for i := len(r.src.lines) - 1; i >= 0; i-- {
		text := r.src.lines[i]
		at := openQuote.FindStringSubmatchIndex(text)
		if at != nil && strings.Count(text[at[2]:], text[at[2]:at[3]])%2 == 1 {
			return place{i + 1, utf8.RuneCountInString(text[:at[2]]) + 1}, ""
		}
	}
	return place{}, ""
}

// openBracket finds the last line that opens more brackets than it closes. It
// searches backwards from the place.
func (r *reader) openBracket(at place) (place, string) {
	for i := at.line - 1; i >= 0; i-- {
		text := unquoted(r.src.lines[i])
		if strings.Count(text, "[")+strings.Count(text, "{") > strings.Count(text, "]")+strings.Count(text, "}") {
			return place{i + 1, strings.LastIndexAny(text, "[{") + 1}, ""
		}
	}
	return place{}, ""
}

// closedBracket looks at the line of the place. It finds a closing bracket that
// has no opening bracket on the line.
func (r *reader) closedBracket(at place) (place, string) {
	depth := 0
	for i, c := range []byte(unquoted(r.src.lines[at.line-1])) {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth < 0 {
			return place{at.line, i + 1}, "this bracket has no opening bracket; remove it, or add the opening bracket"
		}
	}
	return place{}, ""
}

// afterEnd returns the place of text after the end of the document. In this
// message of the YAML library, the first line is 0, and line 0 is not
// mentioned.
func (r *reader) afterEnd(err error) place {
	line := 1
	if m := yamlLine.FindStringSubmatch(strings.TrimPrefix(fmt.Sprint(err), "yaml: ")); m != nil {
		n, _ := strconv.Atoi(m[1])
		line = min(n+1, len(r.src.lines))
	}
	text := r.src.lines[line-1]
	return place{line, len(text) - len(strings.TrimLeft(text, " ")) + 1}
}

// bracketOrColon finds a superfluous bracket, as closedBracket() does. If there
// is none, it finds a value that begins with a colon within brackets.
func (r *reader) bracketOrColon(at place) (place, string) {
	if better, words := r.closedBracket(at); better.line > 0 {
		return better, words
	}
	if m := bareColon.FindStringSubmatchIndex(unquoted(r.src.lines[at.line-1])); m != nil {
		return place{at.line, m[2] + 1}, "text cannot begin with a colon here; put it in quotes"
	}
	return place{}, ""
}

// extraBracket finds the first closing bracket that has no opening bracket. The
// result is reliable only if all maps and lists are written with brackets.
func (r *reader) extraBracket() place {
	return r.bracketAt(func(depth int) bool { return depth < 0 })
}

// tooDeep returns the first bracket beyond maxDepth, or the given place if
// there is none.
func (r *reader) tooDeep(at place) place {
	if deep := r.bracketAt(func(depth int) bool { return depth > maxDepth }); deep.line > 0 {
		return deep
	}
	return at
}

// bracketAt returns the first place at which such() is true for the number of
// open brackets.
func (r *reader) bracketAt(such func(depth int) bool) place {
	depth := 0
	for i, line := range r.src.lines {
		for j, c := range []byte(unquoted(line)) {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth--
			}
			if such(depth) {
				return place{i + 1, j + 1}
			}
		}
	}
	return place{}
}

// unquoted blanks out quoted text and comments. Every character becomes one
// byte, so that offsets are columns.
func unquoted(text string) string {
	blanked := quoted.ReplaceAllStringFunc(text, func(s string) string {
		return strings.Repeat(" ", utf8.RuneCountInString(s))
	})
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, blanked)
}
