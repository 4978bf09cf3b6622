package spec

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"hostler/internal/near"
)

// decoder fills Go values from nodes and remembers the place of each value. It
// continues after an error, so that it finds all errors.
type decoder struct {
	src  *source
	errs Errors
	// places holds the node of every path, e.g. machines.web.memory.
	places map[string]*node
	// failed holds the paths with a reported error.
	failed map[string]bool
	// lenient turns unknown keys into warnings.
	lenient  bool
	warnings []Warning
}

func newDecoder(src *source, errs Errors) *decoder {
	return &decoder{src: src, errs: errs, places: map[string]*node{}, failed: map[string]bool{}}
}

func (d *decoder) newError(n *node, path, format string, args ...any) *Error {
	return &Error{
		File: d.src.file, Line: n.line, Column: n.column, Field: path,
		Message: fmt.Sprintf(format, args...), Excerpt: d.excerpt(n, path),
	}
}

// excerpt returns the line of the node with a caret. It returns "" if the line
// shows user-data, which may be secret.
func (d *decoder) excerpt(n *node, path string) string {
	if strings.HasSuffix(path, "user-data") && n.kind == text && !n.block {
		return ""
	}
	return d.src.excerpt(n.line, n.column)
}

// fail reports an error at a node, once per path.
func (d *decoder) fail(n *node, path, format string, args ...any) {
	if d.failed[path] {
		return
	}
	d.failed[path] = true
	if len(d.errs) > maxErrors {
		return
	}
	d.errs = append(d.errs, d.newError(n, path, format, args...))
}

// bad reports an error at a path. If the document does not hold the path, the
// error points at the nearest enclosing value.
func (d *decoder) bad(path, format string, args ...any) {
	for at := path; ; {
		if n := d.places[at]; n != nil {
			d.fail(n, path, format, args...)
			return
		}
		cut := strings.LastIndexAny(at, ".[")
		if cut < 0 {
			d.fail(d.places[""], path, format, args...)
			return
		}
		at = at[:cut]
	}
}

// badKey reports an error in the name of a map's entry; its value may still be
// valid.
func (d *decoder) badKey(path, format string, args ...any) {
	key := "key " + path
	if d.failed[key] || len(d.errs) > maxErrors {
		return
	}
	d.failed[key] = true
	d.errs = append(d.errs, d.newError(d.places[key], path, format, args...))
}

// ok reports whether the path itself has no reported error.
func (d *decoder) ok(path string) bool { return !d.failed[path] }

// has reports whether the document has a value at the path.
func (d *decoder) has(path string) bool {
	n := d.places[path]
	return n != nil && n.kind != null
}

// line returns the line of a path, or 0 if the document does not hold the path.
func (d *decoder) line(path string) int {
	if n := d.places[path]; n != nil {
		return n.line
	}
	return 0
}

// decode fills v, which must be settable, from n.
func (d *decoder) decode(n *node, v reflect.Value, path string) {
	d.places[path] = n
	if n.broken {
		d.failed[path] = true
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(n, u, path)
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		d.decode(n, p.Elem(), path)
		if d.ok(path) {
			v.Set(p)
		}
		return
	}
	composite := v.Kind() == reflect.Struct || v.Kind() == reflect.Map || v.Kind() == reflect.Slice
	if n.kind == null {
		// A map or list whose entries are all commented out is empty.
		if !composite {
			d.fail(n, path, "has no value; add a value or remove the key")
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.dictionary(n, v, path)
	case reflect.Slice:
		if !d.is(n, list, path) {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
		for i, item := range n.items {
			d.decode(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		if len(n.items) == 0 {
			v.SetZero()
		}
	case reflect.String:
		d.string(n, v, path)
	case reflect.Bool:
		if n.kind != boolean || n.value != "true" && n.value != "false" {
			d.fail(n, path, "must be true or false, not %s%s", describe(n, path), mendBoolean(n))
			return
		}
		v.SetBool(n.value == "true")
	case reflect.Int:
		i, err := strconv.Atoi(n.value)
		if n.kind != number || err != nil || strconv.Itoa(i) != n.value {
			d.fail(n, path, "must be a whole number, not %s%s", describe(n, path), mendNumber(n, err))
			return
		}
		v.SetInt(int64(i))
	default:
		panic("spec: no decoding for " + v.Type().String())
	}
}

func (d *decoder) is(n *node, want kind, path string) bool {
	if n.kind == want {
		return true
	}
	example := "one \"key: value\" per line"
	if want == list {
		example = "like [a, b], or one \"- \" per entry"
	}
	d.fail(n, path, "must be %s (%s), not %s", want, example, describe(n, path))
	return false
}

func (d *decoder) structure(n *node, v reflect.Value, path string) {
	if !d.is(n, mapping, path) {
		return
	}
	fields := structFields(v.Type())
	for _, f := range n.fields {
		at := join(path, f.key.value)
		if i, ok := fields[f.key.value]; ok {
			d.decode(f.value, v.Field(i), at)
			continue
		}
		if len(d.errs) > maxErrors || len(d.warnings) > maxErrors {
			return
		}
		known := slices.Sorted(maps.Keys(fields))
		meant := near.Word(f.key.value, known)
		if !d.lenient && meant != "" {
			d.failed[join(path, meant)] = true // the intended key is not also reported as missing
		}
		message := fmt.Sprintf("the key %s is not known here%s", quote(f.key.value), suggestion(meant, known))
		if d.lenient {
			d.warnings = append(d.warnings, Warning(*d.newError(f.key, shorten(at), "%s", message)))
			continue
		}
		d.fail(f.key, shortPath(path, f.key.value), "%s", message)
	}
}

func (d *decoder) dictionary(n *node, v reflect.Value, path string) {
	if !d.is(n, mapping, path) {
		return
	}
	if len(n.fields) > 0 {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.fields)))
	}
	for _, f := range n.fields {
		at := join(path, f.key.value)
		d.places["key "+at] = f.key
		if f.value.kind == null {
			d.places[at] = f.key // point at the name, because there is no value
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.decode(f.value, e, at)
		if f.value.kind == null {
			d.places[at] = f.key
		}
		v.SetMapIndex(reflect.ValueOf(f.key.value).Convert(v.Type().Key()), e)
	}
}

func (d *decoder) string(n *node, v reflect.Value, path string) {
	if n.kind == number && secret(path) {
		d.fail(n, path, "must be text, not %s; put it in quotes if you mean this text", n.kind)
		return
	}
	if n.kind == number || n.kind == boolean {
		d.fail(n, path, "must be text, not %s; put it in quotes if you mean this text: \"%s\"", describe(n, path), shorten(n.value))
		return
	}
	if n.kind != text {
		d.fail(n, path, "must be text, not %s", n.kind)
		return
	}
	userData := strings.HasSuffix(path, "user-data")
	for _, c := range n.value {
		lineBreak := c == '\n' || c == '\r' || c == '\t'
		switch {
		case userData && lineBreak:
		case lineBreak:
			d.fail(n, path, "must be a single line without tabs")
			return
		case isControl(c):
			d.fail(n, path, "the control character U+%04X is not allowed; remove it", c)
			return
		}
	}
	v.SetString(n.value)
}

func (d *decoder) text(n *node, u encoding.TextUnmarshaler, path string) {
	switch n.kind {
	case null:
		d.fail(n, path, "has no value; add a value or remove the key")
	case list, mapping, boolean:
		d.fail(n, path, "must be text like %s, not %s", example(u), describe(n, path))
	default:
		if err := u.UnmarshalText([]byte(n.value)); err != nil {
			d.fail(n, path, "%v", err)
		}
	}
}

func example(u encoding.TextUnmarshaler) string {
	if _, ok := u.(*Duration); ok {
		return "90s"
	}
	return "512MiB"
}

// secret reports whether the value at a path may hold passwords. Messages must
// not repeat such a value, because messages go to logs and to users with read
// access.
func secret(path string) bool {
	return strings.Contains(path, ".cloud-init") || strings.HasPrefix(path, "proxy") || strings.HasPrefix(path, "apt")
}

// describe returns a node's value for the message "must be …, not …". It leaves
// out values that may be secret.
func describe(n *node, path string) string {
	if secret(path) {
		return n.kind.String()
	}
	switch n.kind {
	case text:
		return "the text " + quote(n.value)
	case number:
		return "the number " + shorten(n.value)
	case boolean:
		return shorten(n.value)
	}
	return n.kind.String()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func shortPath(path, key string) string { return join(path, shorten(key)) }

// knownFields caches the results of structFields by type.
var knownFields sync.Map

// structFields maps the names in a struct's JSON tags to field numbers.
func structFields(t reflect.Type) map[string]int {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]int)
	}
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = i
	}
	knownFields.Store(t, fields)
	return fields
}
