package cloudinit

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"hostler/internal/fault"
)

const person = "#cloud-config\npackages: [nginx]\nruncmd:\n- [touch, /done]\n"

func TestNoFieldsGiveNoUserData(t *testing.T) {
	data, err := UserData(Input{InstanceID: "one"})
	if err != nil || len(data) != 0 {
		t.Fatalf("%q, %v", data, err)
	}
}

func TestUserDataAloneIsVerbatim(t *testing.T) {
	for _, theirs := range []string{person, "#!/bin/sh\ntrue\n", "## template: jinja\n#cloud-config\n{}\n"} {
		data, err := UserData(Input{UserData: theirs})
		if err != nil || string(data) != theirs {
			t.Errorf("%q became %q, %v", theirs, data, err)
		}
	}
}

// B6, A11: proxies, mirror, keys and hostname reach the guest beside the user's
// own part, and neither removes anything from the other.
func TestTypedFieldsStandBesideUserData(t *testing.T) {
	g := Input{
		Hostname: "web", SSHKeys: []string{"ssh-ed25519 AAAA one", "ssh-ed25519 BBBB two"},
		HTTPProxy: "http://proxy:3128", NoProxy: "localhost,10.0.0.0/8",
		AptMirror: "http://mirror/debian", AptProxy: "http://apt:3142", UserData: person,
	}
	data, err := UserData(g)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := inspect(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 3 || parts[0].Body != person || parts[0].ContentType != typeCloudConfig {
		t.Fatalf("parts: %+v", parts)
	}
	want := []map[string]any{
		{
			"merge_how": keepTheirs, "hostname": "web",
			"apt": map[string]any{
				"primary":    []any{map[string]any{"arches": []any{"default"}, "uri": g.AptMirror}},
				"http_proxy": g.AptProxy,
			},
		},
		{
			"merge_how":           addToLists,
			"ssh_authorized_keys": []any{g.SSHKeys[0], g.SSHKeys[1]},
			"write_files": []any{map[string]any{
				"path": "/etc/environment", "append": true,
				"content": "http_proxy=http://proxy:3128\nHTTP_PROXY=http://proxy:3128\nno_proxy=localhost,10.0.0.0/8\nNO_PROXY=localhost,10.0.0.0/8\n",
			}},
		},
	}
	for i, document := range want {
		if diff := cmp.Diff(document, decode(t, parts[i+1].Body)); diff != "" {
			t.Errorf("part %d: %s", i+1, diff)
		}
	}
	again, err := UserData(g)
	if err != nil || !bytes.Equal(data, again) {
		t.Error("the same guest gave other bytes")
	}
}

func TestEveryKindKeepsItsTypeAndBody(t *testing.T) {
	for theirs, kind := range map[string]string{
		person:                                   "text/cloud-config",
		"#!/bin/sh\necho \"ü\"\r\n":              "text/x-shellscript",
		"## template: jinja\n#cloud-config\n{}":  "text/jinja2",
		"#include\nhttp://example.org/one\n":     "text/x-include-url",
		"#include-once\nhttp://example.org/\n":   "text/x-include-once-url",
		"#cloud-boothook\n#!/bin/sh\n":           "text/cloud-boothook",
		"#!/bin/sh\n" + strings.Repeat("x", 2e3): "text/x-shellscript",
	} {
		data, err := UserData(Input{Hostname: "web", UserData: theirs})
		if err != nil {
			t.Errorf("%q: %v", theirs, err)
			continue
		}
		parts, err := inspect(data)
		if err != nil || len(parts) != 2 || parts[0].ContentType != kind || parts[0].Body != theirs {
			t.Errorf("%q: %+v, %v", theirs, parts, err)
		}
	}
}

func TestMultipartUserDataIsNested(t *testing.T) {
	theirs := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n\n" +
		"--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n\n--b\nContent-Type: text/cloud-config\n\n#cloud-config\n{}\n--b--\n"
	data, err := UserData(Input{Hostname: "web", UserData: theirs})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := inspect(data)
	if err != nil || len(parts) != 3 || parts[0].ContentType != "text/x-shellscript" || parts[1].Body != "#cloud-config\n{}" {
		t.Fatalf("%+v, %v", parts, err)
	}
}

func TestRefusedDataIsNotRepeated(t *testing.T) {
	const secret = "hunter2"
	for name, g := range map[string]Input{
		"NUL in user-data":       {UserData: "#!/bin/sh\n" + secret + "\x00"},
		"escape in user-data":    {UserData: "#!/bin/sh\n" + secret + "\x1b[2J"},
		"not UTF-8":              {UserData: "#!/bin/sh\n" + secret + "\xff"},
		"unknown kind":           {UserData: secret},
		"broken message":         {UserData: "Content-Type: " + secret + "\n\n"},
		"too large":              {UserData: "#!/bin/sh\n" + secret + strings.Repeat("x", maxSize)},
		"key with a second line": {SSHKeys: []string{"ssh-rsa " + secret + "\nruncmd: [reboot]"}},
		"empty key":              {SSHKeys: []string{" "}},
		"hostname":               {Hostname: secret + "\nruncmd: [reboot]"},
		"proxy":                  {HTTPProxy: "http://" + secret + "\"\nPATH=/tmp"},
		"mirror":                 {AptMirror: "http://" + secret + " main"},
	} {
		_, err := UserData(g)
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats the value: %v", name, err)
		}
	}
}

func TestMetaData(t *testing.T) {
	data, err := MetaData(Input{Hostname: "on", InstanceID: "1:30"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"local-hostname": "on", "instance-id": "1:30"}, decode(t, string(data))); diff != "" {
		t.Error(diff)
	}
}

func FuzzUserData(f *testing.F) {
	f.Add("web", "ssh-ed25519 AAAA a: b", "http://proxy", "http://mirror", person)
	f.Add("on", "{\"runcmd\": [reboot]}", "", "", "#!/bin/sh\n--hostler\n")
	f.Add("", "- x\u2028", "socks5://[::1]:1", "ü", "Content-Type: multipart/mixed; boundary=x\n\n--x\n\n#!\n--x--")
	f.Fuzz(func(t *testing.T, host, key, proxy, mirror, theirs string) {
		g := Input{Hostname: host, HTTPProxy: proxy, AptMirror: mirror, UserData: theirs}
		if key != "" {
			g.SSHKeys = []string{key}
		}
		data, err := UserData(g)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if len(data) > maxSize {
			t.Fatal("too large")
		}
		if isMIME(theirs) {
			return // the contents of a nested message are the user's own
		}
		parts, err := inspect(data)
		if err != nil {
			t.Fatal(err)
		}
		rest := parts
		if theirs != "" {
			if len(parts) == 0 || parts[0].Body != theirs {
				t.Fatalf("the person's part changed: %q", parts)
			}
			rest = parts[1:]
		}
		got := map[string]any{}
		for _, p := range rest {
			maps.Copy(got, decode(t, p.Body))
		}
		delete(got, "merge_how")
		want := map[string]any{}
		if host != "" {
			want["hostname"] = host
		}
		if mirror != "" {
			want["apt"] = map[string]any{"primary": []any{map[string]any{"arches": []any{"default"}, "uri": mirror}}}
		}
		if key != "" {
			want["ssh_authorized_keys"] = []any{key}
		}
		if proxy != "" {
			want["write_files"] = []any{map[string]any{
				"path": "/etc/environment", "append": true, "content": "http_proxy=" + proxy + "\nHTTP_PROXY=" + proxy + "\n",
			}}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	document := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return document
}
