package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// writeJSON prints indented JSON. It writes characters that would confuse a
// terminal as \u escapes. A program reads them as the same characters.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("cannot print as json: %w", err)
	}
	_, err := io.WriteString(w, escapeHidden(b.String()))
	return err
}

// writeJSONLine prints a value as one line of JSON.
func writeJSONLine(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("cannot print as json: %w", err)
	}
	_, err := io.WriteString(w, escapeHidden(b.String()))
	return err
}

// escapeHidden replaces hidden characters by \u escapes. The text must contain
// such characters only inside double quotes.
func escapeHidden(s string) string {
	if isPlain(strings.ReplaceAll(s, "\n", "")) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// writeYAML converts the JSON of a value to YAML, so that JSON and YAML have
// the same keys in the same order.
func writeYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot print as yaml: %w", err)
	}
	y, err := toYAML(b)
	if err != nil {
		return fmt.Errorf("cannot print as yaml: %w", err)
	}
	_, err = w.Write(y)
	return err
}

// toYAML converts JSON to YAML in block style. A text of several lines becomes
// a literal block.
func toYAML(raw []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(escapeRefused(string(raw))), &n); err != nil {
		return nil, err
	}
	restyle(&n)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&n); err != nil {
		return nil, err
	}
	return []byte(escapeHidden(b.String())), e.Close()
}

// escapeRefused returns s with \u escapes for the characters that JSON permits
// but the YAML reader refuses (YAML 1.2, "Character Set").
func escapeRefused(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func restyle(n *yaml.Node) {
	n.Style = 0
	empty := len(n.Content) == 0 && (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode)
	switch {
	case empty:
		n.Style = yaml.FlowStyle
	case n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, func(r rune) bool { return r != '\n' && hidden(r) }):
		n.Style = yaml.DoubleQuotedStyle
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.Contains(n.Value, "\n"):
		n.Style = yaml.LiteralStyle
	}
	for _, c := range n.Content {
		restyle(c)
	}
}
