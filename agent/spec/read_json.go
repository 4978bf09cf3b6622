package spec

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// json turns a JSON document, known to be well-formed, into nodes.
func (r *reader) json(content []byte) *node {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	j := &jsonReader{reader: r, decoder: d, content: content, line: 1, column: 1}
	return j.value(1)
}

type jsonReader struct {
	*reader
	decoder *json.Decoder
	content []byte
	// offset is how far line and column are counted.
	offset, line, column int
}

// advance counts lines and columns up to an offset. It goes forward only, so
// that all of a document costs no more than one look at each byte.
func (j *jsonReader) advance(to int) {
	for j.offset < to {
		_, n := utf8.DecodeRune(j.content[j.offset:])
		j.column++
		if j.content[j.offset] == '\n' {
			j.line, j.column = j.line+1, 1
		}
		j.offset += n
	}
}

// next returns the next token and its place.
func (j *jsonReader) next() (json.Token, *node) {
	at := int(j.decoder.InputOffset())
	for at < len(j.content) && bytes.IndexByte([]byte(" \t\r\n,:"), j.content[at]) >= 0 {
		at++
	}
	j.advance(at)
	n := &node{line: j.line, column: j.column}
	token, err := j.decoder.Token()
	if err != nil { // json.Valid said otherwise
		j.fail(n.line, n.column, "cannot read the JSON here: %v", err)
	}
	return token, n
}

// value reads one value; nil after an error that ends the reading.
func (j *jsonReader) value(depth int) *node {
	token, n := j.next()
	switch t := token.(type) {
	case string:
		n.kind, n.value = text, t
	case json.Number:
		n.kind, n.value = number, t.String()
	case bool:
		n.kind, n.value = boolean, "false"
		if t {
			n.value = "true"
		}
	case json.Delim:
		if j.deep(depth, n.line, n.column) {
			return nil
		}
		n.kind = list
		if t == '{' {
			n.kind = mapping
		}
		for j.decoder.More() {
			if n.kind == mapping {
				name, key := j.next()
				key.kind = text
				key.value, _ = name.(string)
				value := j.value(depth + 1)
				if value == nil {
					return nil
				}
				j.add(n, key, value)
				continue
			}
			item := j.value(depth + 1)
			if item == nil {
				return nil
			}
			n.items = append(n.items, item)
		}
		j.next() // the closing bracket
	}
	return n
}
