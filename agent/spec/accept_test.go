package spec

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const plainMachine = "machines: {web: {type: lxd, image: debian/12"

// Edits by editors and users that do not change a file's meaning.
func TestParseAccepts(t *testing.T) {
	digest := "#sha256=" + strings.Repeat("0a", 32)
	for name, document := range map[string]string{
		"header":               "#hostler-config\nversion: 1\n" + plainMachine + "}}\n",
		"no header":            "version: 1\n" + plainMachine + "}}",
		"document marks":       "---\nversion: 1\n" + plainMachine + "}}\n...\n",
		"Windows line breaks":  "version: 1\r\nmachines:\r\n  web:\r\n    type: lxd\r\n    image: debian/12\r\n",
		"byte order mark":      "\ufeffversion: 1\n" + plainMachine + "}}\n",
		"JSON":                 `{"version":1,"machines":{"web":{"type":"lxd","image":"debian\/12"}}}`,
		"JSON with tabs":       "{\n\t\"version\": 1,\n\t\"machines\": {\"web\": {\"type\": \"lxd\", \"image\": \"debian/12\"}}\n}\n",
		"flow YAML":            `{version: 1, machines: {web: {type: lxd, image: debian/12}}}`,
		"empty sections":       "version: 1\nnetworks:\nvolumes: {}\nmachines:\n  web:\n    type: lxd\n    image: debian/12\n    networks:\n    storage: []\n    cloud-init:\n",
		"quoted keys":          "'version': 1\n\"machines\": {web: {type: 'lxd', image: \"debian/12\"}}\n",
		"file image":           "version: 1\nmachines: {web: {type: lxd, image: 'file:/srv/web.tar.xz" + digest + "'}}\n",
		"https image":          "version: 1\nmachines: {web: {type: kvm, image: 'https://images.example.com/web.img" + digest + "'}}\n",
		"alias of LXD":         "version: 1\nmachines: {web: {type: lxd, image: 'lxd:my/image'}}\n",
		"taken over":           "version: 1\nmachines: {web: {type: kvm, image: 'kvm:unknown'}}\n",
		"simplestreams":        "version: 1\nmachines: {web: {type: lxd, image: 'simplestreams:images/debian/12/cloud'}}\n",
		"key with options":     "version: 1\n" + plainMachine + ", ssh-keys: ['no-pty " + anyKey + "']}}\n",
		"script":               "version: 1\n" + plainMachine + ", cloud-init: {user-data: \"#!/bin/sh\\ntrue\\n\"}}}\n",
		"MIME":                 "version: 1\n" + plainMachine + ", cloud-init: {user-data: \"Content-Type: multipart/mixed; boundary=x\\r\\n\\r\\n\"}}}\n",
		"template":             "version: 1\n" + plainMachine + ", cloud-init: {user-data: \"## template: jinja\\n#cloud-config\\n{}\\n\"}}}\n",
		"aliases in user-data": "version: 1\n" + plainMachine + ", cloud-init: {user-data: \"#cloud-config\\na: &x [1]\\nb: *x\\n\"}}}\n",
		"marks in user-data":   "version: 1\n" + plainMachine + ", cloud-init: {user-data: \"#cloud-config\\n---\\na: b\\n...\\n# end\\n\"}}}\n",
		"marks":                "# first\n---\nversion: 1\n" + plainMachine + "}}\n...\n\n# last\n",
		"indented throughout":  "  version: 1\n  " + plainMachine + "}}\n# last\n    # deeper\n\n",
		"a filesystem and a device": "version: 1\nvolumes: {d: {provider: loop, size: 1GiB}, e: {provider: loop, size: 1GiB}}\nfilesystems: {f: {volume: d}}\n" +
			plainMachine + ", storage: [{filesystem: f, path: /srv}, {volume: e}]}}\n",
		"mount options that the host overrules": "version: 1\nvolumes: {d: {provider: loop, size: 1GiB}}\nfilesystems: {f: {volume: d, mount-options: [suid, dev, errors=continue, noatime]}}\n" +
			plainMachine + ", storage: [{filesystem: f, path: /srv}]}}\n",
		"a router": "version: 1\nnetworks: {lan: {bridge: br0}}\n" + plainMachine + ", networks: {eth0: {network: lan, router: true}}}}\n",
		"IPv6": "version: 1\nnetworks: {lan: {bridge: br0, addresses: ['fd00::1/64', 10.0.0.1/24]}}\n" +
			plainMachine + ", networks: {eth0: {network: lan, address: 'fd00::2/64'}}}}\n",
	} {
		d, err := Parse("site", []byte(document))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.Name != "site" || d.Machines["web"].Type == "" {
			t.Errorf("%s: understood as %+v", name, d)
		}
		again, err := Parse("again", EncodeYAML(d))
		if err != nil || !reflect.DeepEqual(d, again) {
			t.Errorf("%s: read back as %+v, %v", name, again, err)
		}
	}
}

// User-data keeps every byte, in every YAML style.
func TestUserDataIsKeptExactly(t *testing.T) {
	for _, data := range []string{
		"#!/bin/sh\n\n\n  indented\n\ttabbed\ntrailing  \n\n\n", "#!/bin/sh\r\necho\r\n", "#!/bin/sh", "#!/bin/sh\n---\n...\n# end\n",
		"#cloud-config\nruncmd:\n  - \"echo 'a: b' # no comment\"\n", "#!/bin/sh\necho $'\\x41' é 漢 🙂\n",
	} {
		want := Declaration{Version: 1, Name: "site", Machines: map[string]Machine{
			"web": {Type: LXD, Image: "debian/12", CloudInit: CloudInit{UserData: data}},
		}}
		got, err := Parse("site", EncodeYAML(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q became %+v, %v", data, got, err)
		}
		document, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse("site", document); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q became %+v, %v through JSON", data, got, err)
		}
	}
}

// Errors about user-data do not show its text.
func TestErrorsDoNotShowUserData(t *testing.T) {
	for _, value := range []string{
		"hunter2", "\"#cloud-config\\npassword: [hunter2\\n\"", "\"hunter2\\0\"", "\"#cloud-config hunter2\\n- 1\\n\"",
		"|\n          #cloud-config\n          password: [hunter2\n", "|\n          #cloud-config\n          - hunter2\n",
		"|\n          #cloud-config\n          a: *hunter2\n", "|\n          # cloud-config\n          a: hunter2\n", ">\n          hunter2\n",
	} {
		document := "version: 1\nmachines:\n  web:\n    type: lxd\n    image: debian/12\n    cloud-init:\n        user-data: " + value + "\n"
		_, err := Parse("site", []byte(document))
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 {
			t.Errorf("%q: got %v", value, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || errs[0].Line == 0 {
			t.Errorf("%q: got %v", value, err)
		}
	}
}

// The configuration survives the store.
func TestConfigSurvivesJSON(t *testing.T) {
	want, _, err := ParseConfig("hostler.yaml", []byte("retry-delay: 1500ms\nimages: {sources: [local, 'simplestreams:up'], servers: {up: 'https://images.example.com'}, refresh: 24h}\n"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Config
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if want.Images.RefreshEvery().Hours() != 24 || DefaultConfig().Images.RefreshEvery() != 0 {
		t.Error("images.refresh is not understood")
	}
}
