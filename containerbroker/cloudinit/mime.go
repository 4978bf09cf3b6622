package cloudinit

import (
	"io"
	"mime"
	"net/mail"
	"strings"

	"hostler/internal/fault"
	"hostler/internal/mimemessage"
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

// userPart detects the kind of the user's own user-data and makes it a part. It
// fails with fault.Invalid.
func userPart(data string) (mimemessage.Part, error) {
	if isMIME(data) {
		m, err := mail.ReadMessage(strings.NewReader(data))
		if err != nil {
			return mimemessage.Part{}, fault.New(fault.Invalid, "cannot use user-data: it looks like a MIME message but cannot be read as MIME")
		}
		contentType := m.Header.Get("Content-Type")
		kind, params, err := mime.ParseMediaType(contentType)
		if err != nil || !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" {
			return mimemessage.Part{}, fault.New(fault.Invalid, "cannot use user-data: a MIME message needs a Content-Type of multipart/… with a boundary")
		}
		body, err := io.ReadAll(m.Body)
		if err != nil {
			return mimemessage.Part{}, fault.New(fault.Invalid, "cannot use user-data: its MIME message cannot be read")
		}
		return mimemessage.Part{ContentType: mime.FormatMediaType(kind, params), Body: string(body)}, nil
	}
	for _, k := range kinds {
		if strings.HasPrefix(data, k.prefix) {
			return mimemessage.Part{ContentType: k.contentType, Name: "user-data", Body: data}, nil
		}
	}
	return mimemessage.Part{}, fault.New(fault.Invalid,
		"cannot use user-data: cloud-init does not recognise its first line; begin it with #cloud-config or #!")
}

func isMIME(data string) bool {
	start := strings.ToLower(data[:min(len(data), 16)])
	return strings.HasPrefix(start, "content-type:") || strings.HasPrefix(start, "mime-version:")
}
