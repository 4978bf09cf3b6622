//go:build integration

package cloudinit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"hostler/tests/harness"
)

// The examples of user-data and the cloud-config of `hostler user-data` are valid
// by the schema of cloud-init of each release, and the examples' declarations by
// hostler's.
func TestCloudConfigIsValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(harness.Root(t), "examples/cloud-init/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		declared(t, file)
	}
	dir := t.TempDir()
	host, key := filepath.Join(dir, "host.yaml"), filepath.Join(dir, "key.asc")
	for path, text := range map[string]string{host: web, key: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"deb":  {"--deb", "https://example.org/h.deb#sha256=" + strings.Repeat("0a", 32), "--wait", "20m"},
		"repo": {"--repo", "https://deb.example.org/debian", "--key", key, "--wait", "20m"},
		"wait": {"--wait", "20m"},
	} {
		message := harness.Run(t, filepath.Join(harness.Binaries(t, ""), "hostler"), append([]string{"user-data", "-q", "-f", host}, args...)...)
		file := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(file, []byte(cloudConfig(t, message)), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, release := range releases(t) {
		for _, file := range files {
			out, err := harness.Try([]string{"PYTHONPATH=" + code(t, release), "PYTHONDONTWRITEBYTECODE=1"}, "/usr/bin/python3", "-m", "cloudinit.cmd.main", "schema", "-c", file)
			if err != nil || !strings.Contains(out, "Valid") {
				t.Errorf("%s: %s: %v\n%s", release, filepath.Base(file), err, out)
			}
		}
	}
}

// cloudConfig returns the cloud-config of user-data of several parts.
func cloudConfig(t *testing.T, message string) string {
	t.Helper()
	_, config, found := strings.Cut(message, "\r\n\r\n#cloud-config\n")
	config, _, closed := strings.Cut(config, "\r\n--")
	if !found || !closed {
		t.Fatalf("no cloud-config in\n%s", message)
	}
	return "#cloud-config\n" + config
}

// An installation that fails is an error of cloud-init, although the image has a
// hostler for which the user-data waits.
func TestFailedInstallationFails(t *testing.T) {
	dir := t.TempDir()
	host, bin := filepath.Join(dir, "host.yaml"), filepath.Join(dir, "bin")
	if err := errors.Join(os.WriteFile(host, []byte(web), 0o600), os.Mkdir(bin, 0o755), os.Symlink("/bin/true", filepath.Join(bin, "hostler"))); err != nil {
		t.Fatal(err)
	}
	message := harness.Run(t, filepath.Join(harness.Binaries(t, ""), "hostler"), "user-data", "-q", "-f", host, "--wait", "20m",
		"--deb", "https://example.org/h.deb#sha256="+strings.Repeat("0a", 32))
	config := strings.ReplaceAll(cloudConfig(t, message), "/usr/lib/apt/apt-helper", "/bin/false")
	for _, release := range releases(t) {
		script := harness.Run(t, "env", "PYTHONPATH="+code(t, release), "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", "-c",
			"import sys, yaml; from cloudinit import util; print(util.shellify(yaml.safe_load(sys.argv[1])['runcmd']))", config)
		file := filepath.Join(dir, release)
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := harness.Try([]string{"PATH=" + bin + ":/usr/bin:/bin"}, "/bin/sh", file); err == nil {
			t.Errorf("%s: the script succeeds: %s\n%s", release, out, script)
		}
	}
}

// declared checks the declarations in the write_files of an example.
func declared(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		WriteFiles []struct {
			Path, Content string
		} `yaml:"write_files"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range config.WriteFiles {
		if filepath.Dir(f.Path) != "/etc/hostler/conf.d" {
			continue
		}
		found++
		path := filepath.Join(t.TempDir(), filepath.Base(f.Path))
		if err := os.WriteFile(path, []byte(f.Content), 0o600); err != nil {
			t.Fatal(err)
		}
		harness.Run(t, filepath.Join(harness.Binaries(t, ""), "hostler"), "validate", "-f", path)
	}
	if found == 0 {
		t.Errorf("%s declares nothing", file)
	}
}
