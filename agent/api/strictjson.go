package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strings"

	"hostler/internal/fault"
)

// maxDepth bounds nesting; the deepest body there is has about eight levels.
const maxDepth = 64

// checkJSON says whether b is one JSON value without duplicate keys.
// encoding/json takes the last of two equal keys in silence, which lets two
// readers of one body see different things.
func checkJSON(b []byte) error {
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
				return errors.New("the key " + clip(key, 64) + " is there twice")
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

// utf8Only accepts no parameter of a media type but its being UTF-8.
func utf8Only(params map[string]string) bool {
	for k, v := range params {
		if k != "charset" || !strings.EqualFold(v, "utf-8") {
			return false
		}
	}
	return true
}

// clip cuts what a client chose before it is repeated.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

func cleanPath(p string) string {
	return path.Clean("/" + p)
}
