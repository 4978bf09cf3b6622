package cloudinit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
)

// inspect splits user-data into its parts. The parts of nested MIME messages
// are returned in the same list.
func inspect(data []byte) ([]mimePart, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if !isMIME(string(data)) {
		part, err := userPart(string(data))
		if err != nil {
			return nil, err
		}
		return []mimePart{part}, nil
	}
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return inspectMessage(m.Header.Get("Content-Type"), m.Body)
}

func inspectMessage(contentType string, body io.Reader) ([]mimePart, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	var parts []mimePart
	for r := multipart.NewReader(body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		kind, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			kind = "text/plain"
		}
		if strings.HasPrefix(kind, "multipart/") {
			nested, err := inspectMessage(p.Header.Get("Content-Type"), p)
			if err != nil {
				return nil, err
			}
			parts = append(parts, nested...)
			continue
		}
		var content io.Reader = p
		if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
			content = base64.NewDecoder(base64.StdEncoding, p)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			return nil, err
		}
		parts = append(parts, mimePart{ContentType: kind, Name: p.FileName(), Body: string(text)})
	}
}
