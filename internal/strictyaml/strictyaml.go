// Package strictyaml reads YAML of untrusted origin. It accepts a single
// document, bounded in size and depth, without the parts of the language that
// two parsers may read differently.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The bounds of a document. With these bounds, a hostile document costs no more
// than a large harmless document.
const (
	maxSize  = 256 << 10 // bytes
	maxDepth = 32        // nested maps and lists
)

// errFeature reports a part of the language that is not allowed.
var errFeature = errors.New("it uses an anchor, alias, tag, merge key or directive")

// Unmarshal reads a document into value, a pointer. Unknown keys, repeated keys
// and a second document are errors. An empty document does not change value.
func Unmarshal(content []byte, value any) error {
	if len(content) > maxSize {
		return fmt.Errorf("it is %d bytes long, more than the %d KiB allowed", len(content), maxSize>>10)
	}
	// A text in UTF-16 holds NUL bytes or is not valid UTF-8.
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return errors.New("it is not text in UTF-8")
	}
	lines := strings.Split(string(content), "\n")
	if hasDirective(lines) {
		return errFeature
	}
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return plain(err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return errors.New("it contains more than one document")
	}
	c := checker{lines: lines}
	for _, n := range document.Content {
		if err := c.check(n, 1); err != nil {
			return err
		}
	}
	// Decode the text again, because only a decoder that starts from the text can
	// refuse unknown keys.
	decoder = yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	return plain(decoder.Decode(value))
}

var goType = regexp.MustCompile(` (in type|into) \S+`)

// plain removes the names of Go types and the line breaks from a parser's
// error.
func plain(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		text = strings.Join(wrong.Errors, "; ")
	}
	return errors.New(goType.ReplaceAllString(text, ""))
}

// hasDirective reports whether the text has a %YAML or %TAG line. Only comments
// and empty lines can precede such a line.
func hasDirective(lines []string) bool {
	for _, line := range lines {
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			return line[0] == '%'
		}
	}
	return false
}

// checker checks nodes. It caches the characters of the last checked line,
// because a line may have a node every second character.
type checker struct {
	lines   []string
	line    int
	columns []rune
}

func (c *checker) check(n *yaml.Node, depth int) error {
	switch {
	case n.Kind == yaml.AliasNode, n.Anchor != "", n.Style&yaml.TaggedStyle != 0, n.Tag == "!!merge", c.bareTag(n):
		return errFeature
	case depth > maxDepth && n.Kind != yaml.ScalarNode:
		return fmt.Errorf("maps and lists are nested more than %d deep", maxDepth)
	}
	for _, child := range n.Content {
		if err := c.check(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// bareTag reports whether the node has the tag ! without a name, which the
// parser drops. Only a node with this tag begins with "!".
func (c *checker) bareTag(n *yaml.Node) bool {
	if n.Line < 1 || n.Line > len(c.lines) {
		return false
	}
	if c.line != n.Line {
		c.line, c.columns = n.Line, []rune(c.lines[n.Line-1])
	}
	return n.Column >= 1 && n.Column <= len(c.columns) && c.columns[n.Column-1] == '!'
}
