package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of a document. The size is checked before the document is parsed,
// so that a hostile document costs no more than a document of that size.
const (
	maxSize  = 256 << 10 // bytes
	maxDepth = 32        // nested maps and lists
	maxKey   = 128       // bytes of a key; the longest valid key, a name, has 63
)

// read turns a document into nodes. It accepts a single YAML document without
// anchors, aliases, merge keys and tags, or a JSON object. The node is nil if
// an error leaves nothing to check; otherwise the caller can check it for
// further errors. mend says how to shorten a file that is too large.
func read(file string, content []byte, mend string) (*source, *node, Errors) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	src := newSource(file, "")
	if len(content) > maxSize {
		return src, nil, Errors{{File: file, Message: fmt.Sprintf(
			"the file is %d bytes long, more than the %d KiB allowed; %s", len(content), maxSize>>10, mend)}}
	}
	src = newSource(file, string(content))
	r := &reader{src: src, seen: map[*node]map[string]*node{}}
	if !r.characters() {
		return src, nil, r.errs
	}
	var root *node
	if trimmed := bytes.TrimLeft(content, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(content) {
		root = r.json(content)
	} else {
		root = r.yaml(content)
	}
	if root != nil && root.kind == null && !root.broken {
		root.kind = mapping // an empty document
	}
	return src, root, r.errs
}

// reader collects the errors while it reads a document.
type reader struct {
	src  *source
	errs Errors
	seen map[*node]map[string]*node
	// columns caches the characters of a line, and line is the number of that
	// line.
	line    int
	columns []rune
}

func (r *reader) fail(line, column int, format string, args ...any) {
	if len(r.errs) > maxErrors {
		return
	}
	r.errs = append(r.errs, &Error{
		File: r.src.file, Line: line, Column: column,
		Message: fmt.Sprintf(format, args...), Excerpt: r.src.excerpt(line, column),
	})
}

// characters reports an error on each line that has a character that is never
// text. It returns true if there is no such line.
func (r *reader) characters() bool {
	for i, line := range r.src.lines {
		column := 0
		line = strings.TrimSuffix(line, "\r")
		for at, c := range line {
			column++
			size := 1
			if c == utf8.RuneError {
				_, size = utf8.DecodeRuneInString(line[at:])
			}
			switch {
			case c == utf8.RuneError && size == 1:
				r.fail(i+1, column, "the byte 0x%02x is not UTF-8; save the file as UTF-8", line[at])
			case isControl(c):
				r.fail(i+1, column, "the control character U+%04X is not allowed; remove it", c)
			default:
				continue
			}
			break // one error per line is enough
		}
	}
	return len(r.errs) == 0
}

// add adds a key and its value to a mapping. A duplicate key is an error that
// names the line of the first key.
func (r *reader) add(m, key, value *node) {
	if len(key.value) > maxKey {
		r.fail(key.line, key.column, "the key %s is %d bytes long, more than the %d allowed", quote(key.value), len(key.value), maxKey)
		return
	}
	keys := r.seen[m]
	if keys == nil {
		keys = map[string]*node{}
		r.seen[m] = keys
	}
	if first := keys[key.value]; first != nil {
		r.fail(key.line, key.column, "the key %s is already there on line %d; remove the second", quote(key.value), first.line)
		return
	}
	keys[key.value] = key
	m.fields = append(m.fields, &field{key: key, value: value})
}

// deep reports an error if depth exceeds maxDepth, and returns whether it does.
func (r *reader) deep(depth, line, column int) bool {
	if depth <= maxDepth {
		return false
	}
	r.fail(line, column, "maps and lists are nested more than %d deep here; no declaration needs that", maxDepth)
	return true
}
