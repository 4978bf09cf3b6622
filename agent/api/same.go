package api

import (
	"bytes"
	"encoding/json"

	"hostler/agent/spec"
)

// same compares two values, records or their stored text, by their encoded
// text.
func same(a, b any) bool {
	return bytes.Equal(canonical(a), canonical(b))
}

func canonical(v any) []byte {
	if raw, ok := v.(json.RawMessage); ok {
		var d spec.DeclarationRecord
		if json.Unmarshal(raw, &d) != nil {
			return raw
		}
		v = d
	}
	return spec.Encode(v)
}
