// Package mimemessage writes user-data of several parts as a MIME message.
package mimemessage

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// Part is a part of a message. Name is its file name, or empty.
type Part struct {
	ContentType string
	Name        string
	Body        string
}

// Join joins parts into one MIME message. Its boundary is derived from the
// content, so that the same parts always make the same message.
func Join(parts []Part) ([]byte, error) {
	for round := 0; ; round++ {
		hash := sha256.New()
		fmt.Fprintf(hash, "%d", round)
		for _, p := range parts {
			fmt.Fprintf(hash, "%q%q%q", p.ContentType, p.Name, p.Body)
		}
		boundary := "hostler-" + hex.EncodeToString(hash.Sum(nil)[:20])
		if taken(parts, boundary) {
			continue
		}
		return write(parts, boundary)
	}
}

func taken(parts []Part, boundary string) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return strings.Contains(p.Body, boundary) })
}

func write(parts []Part, boundary string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=%q\r\nMIME-Version: 1.0\r\n\r\n", boundary)
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, fault.New(fault.Invalid, "cannot make a MIME message: %v", err)
	}
	for _, p := range parts {
		header := textproto.MIMEHeader{}
		encoding, body := encode(p)
		contentType := p.ContentType
		if !strings.HasPrefix(contentType, "multipart/") {
			contentType += "; charset=\"utf-8\""
		}
		header.Set("Content-Type", contentType)
		header.Set("Content-Transfer-Encoding", encoding)
		header.Set("MIME-Version", "1.0")
		if p.Name != "" {
			header.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", p.Name))
		}
		pw, err := w.CreatePart(header)
		if err == nil {
			_, err = pw.Write([]byte(body))
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "cannot make a MIME message: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fault.New(fault.Invalid, "cannot make a MIME message: %v", err)
	}
	return b.Bytes(), nil
}

// encode returns ASCII text with short lines unchanged, and other text as
// base64. MIME allows lines of 998 characters. A nested message must stay
// unencoded (RFC 2045, 6.4).
func encode(p Part) (encoding, body string) {
	if strings.HasPrefix(p.ContentType, "multipart/") {
		return "8bit", p.Body
	}
	plain := true
	for line := range strings.SplitSeq(p.Body, "\n") {
		plain = plain && len(line) < 998
	}
	for _, c := range []byte(p.Body) {
		plain = plain && c < 0x7f && c != '\r'
	}
	if plain {
		return "7bit", p.Body
	}
	var b strings.Builder
	for text := base64.StdEncoding.EncodeToString([]byte(p.Body)); text != ""; {
		n := min(76, len(text))
		b.WriteString(text[:n] + "\r\n")
		text = text[n:]
	}
	return "base64", b.String()
}
