package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Field describes a key of a document or of the host's configuration, for the
// manual page.
type Field struct {
	// Path is the key's path, e.g. machines.NAME.storage[].path.
	Path string
	// Value describes the accepted values, e.g. "1 to 65535".
	Value string
	// Default is empty if the key has no default or Description states it.
	Default     string
	Required    bool
	Description string
}

// DeclarationFields returns the keys of a declaration, in the order of the
// fields of the Go types.
func DeclarationFields() []Field {
	return fieldsBelow(reflect.TypeFor[Declaration](), "", declarationSchema, reflect.Value{})
}

// ConfigFields returns the keys of the host's configuration.
func ConfigFields() []Field {
	return fieldsBelow(reflect.TypeFor[Config](), "", configSchema, reflect.ValueOf(DefaultConfig()))
}

// fieldsBelow lists the keys of the struct type t and the keys below them.
// prefix begins their paths. defaults is a struct with the default values, or
// the zero reflect.Value if there are none.
func fieldsBelow(t reflect.Type, prefix string, schemas map[string]fieldSchema, defaults reflect.Value) []Field {
	var all []Field
	for field := range t.Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		f := schemas[t.Name()+"."+key]
		d := Field{Path: prefix + key, Value: f.takes(field.Type), Required: f.required, Description: f.description, Default: formatDefault(f.standard)}
		var standard reflect.Value
		if defaults.IsValid() {
			standard = defaults.FieldByIndex(field.Index)
			if !standard.IsZero() && field.Type.Kind() != reflect.Struct {
				d.Default = formatDefault(standard.Interface())
			}
		}
		all = append(all, d)
		below, path := field.Type, d.Path
		switch {
		case below.Kind() == reflect.Map:
			below, path = below.Elem(), path+".NAME"
		case below.Kind() == reflect.Slice:
			below, path = below.Elem(), path+"[]"
		}
		if below.Kind() == reflect.Struct {
			all = append(all, fieldsBelow(below, path+".", schemas, standard)...)
		}
	}
	return all
}

// takes describes the accepted values of a field of the type.
func (f fieldSchema) takes(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Size]():
		return "size"
	case t == reflect.TypeFor[Duration]():
		return "duration"
	case t.Kind() == reflect.Pointer:
		return f.takes(t.Elem())
	case t.Kind() == reflect.Map:
		return "map by name"
	case t.Kind() == reflect.Struct:
		return "map"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of maps"
	case t.Kind() == reflect.Slice:
		return "list of " + f.takes(t.Elem())
	case f.words != nil:
		return strings.Join(f.words, " | ")
	case t.Kind() == reflect.Bool:
		return "true | false"
	case t.Kind() == reflect.Int && f.most > 0 && f.least == f.most:
		return fmt.Sprint(f.least)
	case t.Kind() == reflect.Int && f.most > 0:
		return fmt.Sprintf("%d to %d", f.least, f.most)
	case t.Kind() == reflect.Int:
		return "number"
	}
	return "text"
}

// formatDefault formats a default value as in YAML. It returns "" for nil.
func formatDefault(standard any) string {
	if standard == nil {
		return ""
	}
	b, err := json.Marshal(standard)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(b), `"`, ""), ",", ", ")
}
