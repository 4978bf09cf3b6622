package spec

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// json turns a well-formed JSON document into nodes.
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
	// line and column are the place of offset.
	offset, line, column int
}

// advance counts lines and columns up to an offset. It only moves forward, so
// it visits each byte of a document once.
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
	if err != nil { // unexpected, because json.Valid() accepted the text
		j.fail(n.line, n.column, "cannot read the JSON here: %v", err)
	}
	return token, n
}

// value reads a value. It returns nil after an error that ends the reading.
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
