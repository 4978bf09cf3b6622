package spec

import (
	"encoding/json"
	"reflect"
	"strings"
)

// object is a JSON object of the schema.
type object = map[string]any

// Schema returns the JSON Schema (2020-12) of a declaration, made from the Go
// types and declarationSchema. It covers the form of each value; Parse also
// checks e.g. references between objects.
func Schema() []byte {
	root := structSchema(reflect.TypeFor[Declaration]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "hostler declaration"
	root["description"] = "The objects of one host. Sizes take B, KiB, MiB, GiB and TiB, like 512MiB."
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic("spec: cannot write the schema: " + err.Error())
	}
	return append(b, '\n')
}

func structSchema(t reflect.Type) object {
	properties := object{}
	var required []string
	for field := range t.Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		f := declarationSchema[t.Name()+"."+key]
		if f.required {
			required = append(required, key)
		}
		properties[key] = f.schema(field.Type)
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	return s
}

// schema returns the schema of a field. For a list of text, the words and the
// pattern apply to the entries.
func (f fieldSchema) schema(t reflect.Type) object {
	s := f.value(t)
	s["description"] = f.description
	if f.standard != nil {
		s["default"] = f.standard
	}
	return s
}

func (f fieldSchema) value(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[Size]():
		return object{"type": "string", "pattern": sizePattern}
	case t.Kind() == reflect.Pointer:
		return f.value(t.Elem())
	case t.Kind() == reflect.Struct:
		s := structSchema(t)
		s["type"] = []string{"object", "null"}
		return s
	case t.Kind() == reflect.Map:
		entry := f.value(t.Elem())
		entry["type"] = "object" // an entry cannot be null
		return object{
			"type": []string{"object", "null"}, "propertyNames": object{"pattern": "^" + f.names + "$"},
			"additionalProperties": entry,
		}
	case t.Kind() == reflect.Slice:
		entry := fieldSchema{words: f.words, pattern: f.pattern}.value(t.Elem())
		if t.Elem().Kind() == reflect.Struct {
			entry["type"] = "object"
		}
		return object{"type": []string{"array", "null"}, "items": entry}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.Int:
		return object{"type": "integer", "minimum": f.least, "maximum": f.most}
	}
	s := object{"type": "string"}
	if f.words != nil {
		s["enum"] = f.words
	}
	if f.pattern != "" {
		s["pattern"] = f.pattern
	}
	return s
}
