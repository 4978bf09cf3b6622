package cloudinit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"

	"hostler/internal/fault"
)

const typeCloudConfig = "text/cloud-config"

// kinds lists how the first lines of user-data begin, from which cloud-init
// learns the kind. A longer prefix comes before a shorter one with the same
// beginning.
var kinds = []struct{ prefix, contentType string }{
	{"## template: jinja", "text/jinja2"},
	{"#cloud-config-archive", "text/cloud-config-archive"},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{"#cloud-config", typeCloudConfig},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#include-once", "text/x-include-once-url"},
	{"#include", "text/x-include-url"},
	{"#part-handler", "text/part-handler"},
	{"#!", "text/x-shellscript"},
}

// mimePart is a part of user-data.
type mimePart struct {
	ContentType string
	Name        string
	Body        string
}

// userPart detects the kind of the user's own user-data and makes it a part. It
// fails with fault.Invalid.
func userPart(data string) (mimePart, error) {
	if isMIME(data) {
		m, err := mail.ReadMessage(strings.NewReader(data))
		if err != nil {
			return mimePart{}, fault.New(fault.Invalid, "cannot use user-data: it looks like a MIME message but cannot be read as MIME")
		}
		contentType := m.Header.Get("Content-Type")
		kind, params, err := mime.ParseMediaType(contentType)
		if err != nil || !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" {
			return mimePart{}, fault.New(fault.Invalid, "cannot use user-data: a MIME message needs a Content-Type of multipart/… with a boundary")
		}
		body, err := io.ReadAll(m.Body)
		if err != nil {
			return mimePart{}, fault.New(fault.Invalid, "cannot use user-data: its MIME message cannot be read")
		}
		return mimePart{ContentType: mime.FormatMediaType(kind, params), Body: string(body)}, nil
	}
	for _, k := range kinds {
		if strings.HasPrefix(data, k.prefix) {
			return mimePart{ContentType: k.contentType, Name: "user-data", Body: data}, nil
		}
	}
	return mimePart{}, fault.New(fault.Invalid,
		"cannot use user-data: cloud-init does not recognise its first line; begin it with #cloud-config or #!")
}

func isMIME(data string) bool {
	start := strings.ToLower(data[:min(len(data), 16)])
	return strings.HasPrefix(start, "content-type:") || strings.HasPrefix(start, "mime-version:")
}

// message joins parts into one MIME message. Its boundary is derived from the
// content, so that the same parts always make the same message.
func message(parts []mimePart) ([]byte, error) {
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

func taken(parts []mimePart, boundary string) bool {
	return slices.ContainsFunc(parts, func(p mimePart) bool { return strings.Contains(p.Body, boundary) })
}

func write(parts []mimePart, boundary string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=%q\r\nMIME-Version: 1.0\r\n\r\n", boundary)
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, fault.New(fault.Invalid, "cannot join cloud-init data: %v", err)
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
			return nil, fault.New(fault.Invalid, "cannot join cloud-init data: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fault.New(fault.Invalid, "cannot join cloud-init data: %v", err)
	}
	return b.Bytes(), nil
}

// encode returns ASCII text with short lines unchanged, and other text as
// base64. MIME allows lines of 998 characters. A nested message must stay
// unencoded (RFC 2045, 6.4).
func encode(p mimePart) (encoding, body string) {
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
