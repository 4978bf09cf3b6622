package cloudinit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"hostler/internal/fault"
	"hostler/internal/mimemessage"
)

// maxSize is the size in bytes of the largest user-data that UserData() makes.
// It has room for 64 KiB of the user's own user-data, as base64 if that is not
// ASCII, and for the generated parts.
const maxSize = 128 << 10

// The merge rules of the generated parts. When cloud-init merges two parts, it
// applies the rule of the later part. The generated parts come last, so that
// the user's values stay, whatever merge rule the user's part has.
const (
	keepTheirs = "dict(no_replace)+list()+str()"
	addToLists = "dict(no_replace,recurse_list)+list(append)+str()"
)

// settings is the generated cloud-config whose values the user's own part may
// replace.
type settings struct {
	MergeHow string `json:"merge_how"`
	Hostname string `json:"hostname,omitempty"`
	Apt      *apt   `json:"apt,omitempty"`
}

type apt struct {
	Primary   []mirror `json:"primary,omitempty"`
	HTTPProxy string   `json:"http_proxy,omitempty"`
}

type mirror struct {
	Arches []string `json:"arches"`
	URI    string   `json:"uri"`
}

// additions is the generated cloud-config whose lists extend the lists in the
// user's own part.
type additions struct {
	MergeHow string   `json:"merge_how"`
	SSHKeys  []string `json:"ssh_authorized_keys,omitempty"`
	Files    []file   `json:"write_files,omitempty"`
}

type file struct {
	Path    string `json:"path"`
	Append  bool   `json:"append"`
	Content string `json:"content"`
}

// UserData returns cloud-init's user-data. It is empty if g is empty. If the
// user's part is the only part, it is returned unchanged. A single generated
// part is returned as cloud-config. Several parts become a MIME message. The
// same Input gives the same bytes. UserData fails with fault.Invalid; its
// errors contain no values of g.
func UserData(g Input) ([]byte, error) {
	if err := check(g); err != nil {
		return nil, err
	}
	parts, err := generated(g)
	if err != nil {
		return nil, err
	}
	if g.UserData != "" {
		theirs, err := userPart(g.UserData)
		if err != nil {
			return nil, err
		}
		parts = slices.Insert(parts, 0, theirs)
	}
	var data []byte
	switch {
	case len(parts) == 0:
		return nil, nil
	case len(parts) == 1 && g.UserData != "":
		data = []byte(g.UserData)
	case len(parts) == 1:
		data = []byte(parts[0].Body)
	default:
		if data, err = mimemessage.Join(parts); err != nil {
			return nil, err
		}
	}
	if len(data) > maxSize {
		return nil, fault.New(fault.Invalid, "cannot use cloud-init data: %d bytes, the limit is %d", len(data), maxSize)
	}
	return data, nil
}

// generated returns the parts that are made from the typed fields of g.
func generated(g Input) ([]mimemessage.Part, error) {
	var parts []mimemessage.Part
	s := settings{MergeHow: keepTheirs, Hostname: g.Hostname}
	if g.AptMirror != "" || g.AptProxy != "" {
		s.Apt = &apt{HTTPProxy: g.AptProxy}
		if g.AptMirror != "" {
			s.Apt.Primary = []mirror{{Arches: []string{"default"}, URI: g.AptMirror}}
		}
	}
	if s.Hostname != "" || s.Apt != nil {
		part, err := cloudConfig("hostler-settings.cfg", s)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	a := additions{MergeHow: addToLists, SSHKeys: g.SSHKeys}
	if content := environment(g); content != "" {
		a.Files = []file{{Path: "/etc/environment", Append: true, Content: content}}
	}
	if len(a.SSHKeys) > 0 || len(a.Files) > 0 {
		part, err := cloudConfig("hostler-additions.cfg", a)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// environment returns the proxy lines of /etc/environment, each in lower and
// upper case, because some programs read only one of the two.
func environment(g Input) string {
	var b bytes.Buffer
	for _, v := range []struct{ lower, upper, value string }{
		{"http_proxy", "HTTP_PROXY", g.HTTPProxy},
		{"https_proxy", "HTTPS_PROXY", g.HTTPSProxy},
		{"no_proxy", "NO_PROXY", g.NoProxy},
	} {
		if v.value != "" {
			fmt.Fprintf(&b, "%s=%s\n%s=%s\n", v.lower, v.value, v.upper, v.value)
		}
	}
	return b.String()
}

// cloudConfig encodes a document as JSON, which is also YAML. JSON quotes every
// string, because cloud-init's YAML 1.1 reads an unquoted "on" as a boolean and
// 1:30 as a number.
func cloudConfig(name string, document any) (mimemessage.Part, error) {
	var b bytes.Buffer
	b.WriteString("#cloud-config\n")
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return mimemessage.Part{}, fault.New(fault.Invalid, "cannot encode cloud-init data: %v", err)
	}
	return mimemessage.Part{ContentType: typeCloudConfig, Name: name, Body: b.String()}, nil
}
