package spec

import (
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yaml turns a YAML document into nodes.
func (r *reader) yaml(content []byte) *node {
	if r.directive() {
		return nil
	}
	var doc yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return &node{line: 1, column: 1}
	} else if err != nil {
		r.syntax(content, err)
		return nil
	}
	if r.more(decoder) {
		return nil
	}
	return r.convert(doc.Content[0], 1)
}

// directive reports an error for a %YAML or %TAG line, or a comment of another
// language, before all other text. It returns whether there is one.
func (r *reader) directive() bool {
	for i, line := range r.src.lines {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if line[0] == '%' {
			r.fail(i+1, 1, "YAML directives (%%) are not used here; remove the line")
			return true
		}
		if strings.HasPrefix(trimmed, "//") || strings.HasPrefix(trimmed, "/*") {
			r.fail(i+1, len(line)-len(strings.TrimLeft(line, " \t"))+1, "a comment begins with #, not %s", trimmed[:2])
			return true
		}
		return false
	}
	return false
}

// more reports an error for text after the first document, and returns whether
// there is such text. The YAML library treats all text outside the first value
// as the next document.
func (r *reader) more(decoder *yaml.Decoder) bool {
	err := decoder.Decode(&yaml.Node{})
	if errors.Is(err, io.EOF) {
		return false
	}
	if line := r.secondDocument(); line > 0 {
		if text := strings.TrimSpace(strings.Join(r.src.lines[line-1:], "\n")); text == "---" {
			r.fail(line, 1, "nothing follows this mark of a second document; remove it")
			return true
		}
		r.fail(line, 1, "a second document begins here; put it into a separate file")
		return true
	}
	at := r.afterEnd(err)
	if extra := r.extraBracket(); extra.line == at.line {
		r.fail(extra.line, extra.column, "this bracket has no opening bracket; remove it, or add the opening bracket")
		return true
	}
	r.fail(at.line, at.column, "the document ends before this line, and no text may follow it; check the indentation of its first line")
	return true
}

// secondDocument returns the line that begins a second document, or 0 if there
// is none. That line is the first --- after other text, or the first text after
// an end mark (...).
func (r *reader) secondDocument() int {
	begun, ended := false, false
	for i, line := range r.src.lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#':
		case ended:
			return i + 1
		case line == "---" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "---\t") || line == "---\r":
			if begun {
				return i + 1
			}
			begun = true
		case line == "..." || strings.HasPrefix(line, "... ") || line == "...\r":
			ended = true
		default:
			begun = true
		}
	}
	return 0
}

const noAliases = "aliases (*) are not used here; write the value out, and put text that begins with * in quotes"

// convert turns YAML nodes into nodes of this package.
func (r *reader) convert(y *yaml.Node, depth int) *node {
	n := &node{line: y.Line, column: y.Column}
	if y.Anchor != "" {
		r.fail(y.Line, y.Column, "anchors (&) are not used here; remove it, and put text that begins with & in quotes")
	}
	switch {
	case y.Kind == yaml.AliasNode:
		r.fail(y.Line, y.Column, noAliases)
		n.broken = true
		return n
	case y.Style&yaml.TaggedStyle != 0 || r.bareTag(y):
		r.fail(y.Line, y.Column, "tags (!) are not used here; remove it, and put text that begins with ! in quotes")
		n.broken = true
		return n
	case y.Kind == yaml.ScalarNode:
		n.scalar(y)
		return n
	case r.deep(depth, y.Line, y.Column):
		n.broken = true
		return n
	case y.Kind == yaml.SequenceNode:
		n.kind = list
		for _, c := range y.Content {
			n.items = append(n.items, r.convert(c, depth+1))
		}
		return n
	}
	n.kind = mapping
	for i := 0; i+1 < len(y.Content); i += 2 {
		r.pair(n, y.Content[i], y.Content[i+1], depth)
	}
	return n
}

// bareTag reports whether a node has the tag ! without a name, which the YAML
// library drops. Outside of quotes, only tags begin with "!".
func (r *reader) bareTag(y *yaml.Node) bool {
	if y.Line < 1 || y.Line > len(r.src.lines) {
		return false
	}
	if r.line != y.Line { // split a line only once, because it may hold many nodes
		r.line, r.columns = y.Line, []rune(r.src.lines[y.Line-1])
	}
	return y.Column >= 1 && y.Column <= len(r.columns) && r.columns[y.Column-1] == '!'
}

func (r *reader) pair(m *node, k, v *yaml.Node, depth int) {
	switch {
	case k.Kind == yaml.ScalarNode && k.Tag == "!!merge":
		r.fail(k.Line, k.Column, "merge keys (<<) are not used here; write the keys out")
		m.broken = true // the keys to merge would be reported as missing
		return
	case k.Kind == yaml.ScalarNode && k.Style == 0 && strings.Contains(k.Value, ":"):
		before, _, _ := strings.Cut(k.Value, ":")
		r.fail(k.Line, k.Column+utf8.RuneCountInString(before)+1, "a space is missing after the colon")
		m.broken = true
		return
	case k.Kind == yaml.MappingNode || k.Kind == yaml.SequenceNode:
		r.fail(k.Line, k.Column, "a key must be a plain word, not a map or a list; put text with braces in quotes")
		return
	}
	key := r.convert(k, depth+1)
	value := r.convert(v, depth+1)
	switch {
	case key.broken:
	case key.kind == null:
		r.fail(key.line, key.column, "a key is missing before the colon")
	default:
		r.add(m, key, value)
	}
}

// scalar fills in a plain, quoted or block scalar.
func (n *node) scalar(y *yaml.Node) {
	n.value = y.Value
	n.block = y.Style&yaml.LiteralStyle != 0
	switch y.ShortTag() {
	case "!!null":
		n.kind = null
	case "!!bool":
		n.kind = boolean
	case "!!int", "!!float":
		n.kind = number
	default:
		n.kind = text
	}
}
