package spec

import (
	"bytes"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// header is the first line by which users and editors recognise a declaration.
const header = "#hostler-config\n"

// EncodeYAML writes a declaration as canonical YAML. Keys are in the order of
// the manual, names are sorted, and empty fields are omitted. Parse() of the
// YAML returns the same declaration.
func EncodeYAML(d Declaration) []byte {
	var out bytes.Buffer
	out.WriteString(header)
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(toYAML(reflect.ValueOf(d))); err != nil {
		panic("spec: cannot encode a declaration: " + err.Error())
	}
	if err := e.Close(); err != nil {
		panic("spec: cannot encode a declaration: " + err.Error())
	}
	return out.Bytes()
}

// toYAML turns a value into a YAML node by its JSON tags.
func toYAML(v reflect.Value) *yaml.Node {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, err := m.MarshalText()
		if err != nil {
			panic("spec: cannot encode a declaration: " + err.Error())
		}
		return textNode(string(b))
	}
	n := &yaml.Node{}
	switch v.Kind() {
	case reflect.Pointer:
		return toYAML(v.Elem())
	case reflect.Struct:
		n.Kind = yaml.MappingNode
		for i := range v.NumField() {
			name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if options != "" && isEmpty(v.Field(i)) {
				continue
			}
			n.Content = append(n.Content, textNode(name), toYAML(v.Field(i)))
		}
	case reflect.Map:
		n.Kind = yaml.MappingNode
		names := map[string]reflect.Value{}
		for _, k := range v.MapKeys() {
			names[k.String()] = v.MapIndex(k)
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			n.Content = append(n.Content, textNode(name), toYAML(names[name]))
		}
	case reflect.Slice:
		n.Kind = yaml.SequenceNode
		for i := range v.Len() {
			n.Content = append(n.Content, toYAML(v.Index(i)))
		}
	case reflect.String:
		return textNode(v.String())
	default: // bool, int
		n.Kind, n.Value = yaml.ScalarNode, fmt.Sprint(v.Interface())
	}
	return n
}

// isEmpty reports whether omitempty and omitzero omit the value.
func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Map || v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.IsZero()
}

// textNode returns a node for text. Text of several lines becomes a block if a
// block preserves the text exactly, and is double-quoted otherwise. The encoder
// chooses the style of other text.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch {
	case blockSafe(s):
		n.Style = yaml.LiteralStyle
	case strings.ContainsAny(s, "\n\r\t"):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// blockSafe reports whether a block scalar preserves the text. Such text has
// several lines, ends with a single line break, begins with neither space nor
// line break, and holds nothing that a block changes or an editor would drop,
// e.g. trailing spaces.
func blockSafe(s string) bool {
	body, ok := strings.CutSuffix(s, "\n")
	if !ok || body == "" || strings.HasSuffix(body, "\n") || strings.ContainsAny(body[:1], " \t\n") {
		return false
	}
	return !strings.Contains(s, "\r") && !strings.Contains(s, " \n") && !strings.Contains(s, "\t\n") && strings.Contains(body, "\n")
}
