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

	"hostler/internal/mimemessage"
)

// inspect splits user-data into its parts. The parts of nested MIME messages
// are returned in the same list.
func inspect(data []byte) ([]mimemessage.Part, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if !isMIME(string(data)) {
		part, err := userPart(string(data))
		if err != nil {
			return nil, err
		}
		return []mimemessage.Part{part}, nil
	}
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return inspectMessage(m.Header.Get("Content-Type"), m.Body)
}

func inspectMessage(contentType string, body io.Reader) ([]mimemessage.Part, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	var parts []mimemessage.Part
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
		parts = append(parts, mimemessage.Part{ContentType: kind, Name: p.FileName(), Body: string(text)})
	}
}
