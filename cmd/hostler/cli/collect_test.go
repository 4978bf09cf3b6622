package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// secrets are in the user-data, the configuration, messages and the journal of
// secretHost.
var secrets = []string{"hunter2secret", "correct-horse", "s3cr3t-proxy", "ghp_0123456789abcdef", "MIIEowIBAAKCAQEA", "battery staple", "runner-registration", "only-of-a-held-machine"}

const secretUserData = `#cloud-config
chpasswd: {list: ["root:hunter2secret"]}
write_files:
  - path: /etc/app.conf
    content: |
      db_key = correct-horse
runcmd:
  - [register, --with, runner-registration]
`

func secretHost() *standIn {
	s := smallHost()
	declared := spec.DeclarationRecord{Source: "apply", Document: spec.Declaration{Version: 1, Name: "site", Machines: map[string]spec.Machine{
		"web": {Type: spec.LXD, Image: "debian/12", CloudInit: spec.CloudInit{UserData: secretUserData}},
	}}}
	s.objects["declaration/site"] = client.Object{Kind: "declaration", Name: "site", UID: "uid-site", Life: "alive", Spec: spec.Encode(declared)}
	web := webObject()
	web.Spec = spec.Encode(spec.MachineRecord{Machine: declared.Document.Machines["web"]})
	s.objects["machine/web"] = web
	held := spec.Machine{Type: spec.LXD, Image: "debian/12", CloudInit: spec.CloudInit{UserData: "#!/bin/sh\njoin only-of-a-held-machine\n"}}
	s.objects["machine/db"] = client.Object{Kind: "machine", Name: "db", Spec: spec.Encode(spec.MachineRecord{Machine: held})}
	s.events[1].Message = "cannot fetch https://user:s3cr3t-proxy@mirror.test/x: token=ghp_0123456789abcdef refused; app said db_key = correct-horse"
	s.status.Notices = append(s.status.Notices, `cloud-init failed: password: "battery staple" (chpasswd root:hunter2secret)`, "cannot join only-of-a-held-machine")
	s.machines[0].Message = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n"
	return s
}

// collectOf runs collect-logs and returns its result and the archive's files.
func collectOf(t *testing.T, served agent, root, journal string, term *fakeTerminal, args ...string) (outcome, map[string]string) {
	t.Helper()
	var out, messages bytes.Buffer
	code := execute(t.Context(), env{
		Args: append([]string{"collect-logs"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &messages, Root: root,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return noon }, Term: term,
		Run: func(_ context.Context, path string, _ ...string) (string, error) {
			if journal == "" {
				return "", errors.New("cannot start " + path)
			}
			return journal, nil
		},
		Dial: func(string, *slog.Logger) agent { return served },
	})
	got := outcome{code, out.String(), messages.String()}
	if !slices.Contains(args, "-") || code != exitOK {
		return got, nil
	}
	return got, unpack(t, out.Bytes())
}

func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}

// No file of the archive holds a secret, wherever it stands.
func TestCollectedLogsHoldNoSecrets(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"etc/hostler/hostler.yaml":        "proxy: {http: 'http://user:s3cr3t-proxy@proxy.test:3128'}\n",
		"etc/hostler/conf.d/site.yaml":    secretUserData,
		"run/cloud-init/result.json":      `{"v1": {"errors": ["password: hunter2secret"]}}`,
		"etc/os-release":                  "ID=debian\n",
		"var/lib/hostler/apt-proxy.conf":  "s3cr3t-proxy",
		"etc/hostler/conf.d/broken.yaml~": "password: correct-horse",
	} {
		file := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	journal := "Nov 24 hostlerd[1]: Authorization: Bearer ghp_0123456789abcdef\nNov 24 hostlerd[1]: ran register --with, runner-registration\nNov 24 hostlerd[1]: the machine web is ready\n"
	got, files := collectOf(t, secretHost(), root, journal, &fakeTerminal{}, "--to", "-")
	if got.code != exitOK || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	for name, text := range files {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %q:\n%s", name, secret, text)
			}
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON: %s", name, text)
		}
	}
	for name, want := range map[string]string{
		"journal.txt":            "the machine web is ready",
		"declarations/site.json": "debian/12",
		"machines/web.json":      "cannot set limits: refused",
		"machines.json":          `"web"`,
		"status.json":            "LXD 5.0.2",
		"doctor.json":            "3 % free",
		"events.json":            "created from",
		"hostler-yaml.json":      "http://proxy.test:3128",
		"conf.d.json":            "site.yaml",
		"cloud-init-result.json": "errors",
		"version.json":           "agent",
		"plan.json":              "steps",
		"os-release":             "debian",
		"collected.txt":          "Collected by hostler",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q: %q of %v", name, want, files[name], slices.Sorted(maps.Keys(files)))
		}
	}
}

// Without an agent and as a user without the journal, the archive has the rest
// and names the missing parts.
func TestCollectWithoutAgent(t *testing.T) {
	root := t.TempDir()
	served := &standIn{err: fault.New(fault.NotReady, "no agent answers at /run/hostler/hostler.sock: %w", client.ErrNotRunning)}
	got, files := collectOf(t, served, root, "", &fakeTerminal{}, "--to", "-")
	if got.code != exitOK || !strings.Contains(got.stderr, "not in the archive: journal.txt: cannot start /usr/bin/journalctl") ||
		!strings.Contains(files["collected.txt"], "missing status.json: no agent answers") || !strings.Contains(files["doctor.json"], "systemctl start hostlerd") {
		t.Errorf("exit %d, %s\n%v", got.code, got.stderr, files)
	}
}

// Without an agent, the user-data of the files in conf.d is hidden in the other parts.
func TestCollectWithoutAgentHoldsNoSecrets(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc/hostler/conf.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	valid := "version: 1\nmachines:\n  web:\n    type: lxd\n    image: debian/12\n    cloud-init:\n      user-data: |\n        " +
		strings.ReplaceAll(secretUserData, "\n", "\n        ") + "\n"
	for name, text := range map[string]string{"site.yaml": valid, "db.yaml": "version: 1\nmachine:\n  db: {cloud-init: {user-data: \"#!/bin/sh\\njoin only-of-a-held-machine\"}}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	served := &standIn{err: fault.New(fault.NotReady, "no agent answers: %w", client.ErrNotRunning)}
	journal := "ran register --with, runner-registration\napp said db_key = correct-horse\nroot:hunter2secret\ncannot join only-of-a-held-machine\nthe machine web is ready\n"
	got, files := collectOf(t, served, root, journal, &fakeTerminal{}, "--to", "-")
	if got.code != exitOK || !strings.Contains(files["journal.txt"], "the machine web is ready") {
		t.Errorf("exit %d, %s\n%v", got.code, got.stderr, files)
	}
	for name, text := range files {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %q:\n%s", name, secret, text)
			}
		}
	}
}

// The file is for its owner only, and no file is replaced.
func TestCollectWritesAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	got, _ := collectOf(t, smallHost(), t.TempDir(), "journal", &fakeTerminal{})
	const name = "hostler-logs-20260102-120000.tar.gz"
	all, err := filepath.Glob("*")
	if err != nil || got.code != exitOK || len(all) != 1 || !strings.Contains(got.stdout, "wrote "+all[0]) || len(all[0]) != len(name) {
		t.Fatalf("%+v, %v", got, all)
	}
	info, err := os.Stat(all[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, _ := collectOf(t, smallHost(), t.TempDir(), "journal", &fakeTerminal{}); got.code != exitError || !strings.Contains(got.stderr, all[0]) {
		t.Errorf("a second archive: %+v", got)
	}
	if got, _ := collectOf(t, smallHost(), t.TempDir(), "journal", &fakeTerminal{on: true}, "--to", "-"); got.code != exitError || got.stdout != "" {
		t.Errorf("to a terminal: %+v", got)
	}
}
