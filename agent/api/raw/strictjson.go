package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"hostler/internal/fault"
)

// Decode decodes the body, which the server has already checked, into v. It
// refuses unknown fields and fields that are written in another case.
func Decode(r *http.Request, v any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	}
	if err := checkKeys(b, v); err != nil {
		return fault.New(fault.Invalid, "cannot read the request's body: %v", err)
	}
	return nil
}

// Query returns the query. It refuses parameters that are not in known.
func Query(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot read the query: %v", err)
	}
next:
	for k := range q {
		for _, want := range known {
			if k == want {
				continue next
			}
		}
		return nil, fault.New(fault.Invalid, "unknown query parameter %q", fault.Clip(k, 32))
	}
	return q, nil
}

// maxDepth bounds the levels of nesting. The deepest valid body has about
// eight.
const maxDepth = 64

// CheckJSON checks that b is a single JSON value without duplicate keys.
// encoding/json takes the last of two equal keys without an error, whereas
// another reader of the body could take the first.
func CheckJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := checkValue(dec, 0); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fault.New(fault.Invalid, "the body is not valid JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "the body is not valid JSON: more than one value")
	}
	return nil
}

func checkValue(dec *json.Decoder, depth int) error {
	if depth > maxDepth {
		return errors.New("nested too deeply")
	}
	t, err := dec.Token()
	if err != nil {
		return err
	}
	d, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	keys := map[string]bool{}
	for dec.More() {
		if d == '{' {
			t, err := dec.Token()
			if err != nil {
				return err
			}
			key, ok := t.(string)
			if !ok {
				return errors.New("a key is not a string")
			}
			if keys[key] {
				return errors.New("the key " + fault.Clip(key, 64) + " is there twice")
			}
			keys[key] = true
		}
		if err := checkValue(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// Unmarshal is json.Unmarshal for clients' input. It also calls checkKeys().
func Unmarshal(b []byte, v any) error {
	if err := checkKeys(b, v); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// checkKeys refuses a key that differs from one of v's keys only in case.
// encoding/json accepts such keys, so {"mode":…,"Mode":…} would pass for an
// object without duplicates.
func checkKeys(b []byte, v any) error {
	var sent any
	if err := json.Unmarshal(b, &sent); err != nil {
		return err
	}
	return checkCase(reflect.TypeOf(v), sent)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// checkCase compares the sent keys with the fields of the target type. Keys of
// maps may be any text.
func checkCase(t reflect.Type, sent any) error {
	if t.Kind() == reflect.Pointer {
		return checkCase(t.Elem(), sent)
	}
	if t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch sent := sent.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		for _, element := range sent {
			if err := checkCase(t.Elem(), element); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, value := range sent {
			under, err := fieldOf(t, key)
			if under != nil && err == nil {
				err = checkCase(under, value)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldOf returns the type of the value under a key in a value of type t, or
// nil if t has no such key. It returns an error if t has the key in another
// case.
func fieldOf(t reflect.Type, key string) (reflect.Type, error) {
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	if t.Kind() != reflect.Struct {
		return nil, nil
	}
	var near string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-" || f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		if name == key {
			return f.Type, nil
		}
		if strings.EqualFold(name, key) {
			near = name
		}
	}
	if near != "" {
		return nil, fault.New(fault.Invalid, "the key %q is not known here; it is written %q", fault.Clip(key, 64), near)
	}
	return nil, nil
}
