//go:build integration

package cloudinit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// The errors reach the script that cloud-init runs at the end of the boot, whose
// failure is an error in the result of each release.
func TestErrorsReachTheScript(t *testing.T) {
	two := strings.Replace(part("text/hostler-config", "a.yaml", web), "--b0--", "--b0\nContent-Type: text/hostler-config\nContent-Disposition: attachment; filename=\"a.yml\"\n\nother\n--b0--", 1)
	for _, release := range releases(t) {
		for userData, want := range map[string]string{
			web: "",
			"#hostler-config\nversion: 1\nmachine: {}\n":             "cloud-init-user-data.yaml:3:1: machine: the key",
			strings.Replace(web, "version", "# f\xfcr\nversion", 1): "user-data is not used, because its text is not UTF-8",
			two: "the parts a.yaml and a.yml have the same name",
			strings.Replace(part("text/hostler-config", "web.yaml", web), "Content-Disp", "X-Hostler-Wait: soon\nContent-Disp", 1): "X-Hostler-Wait of web.yaml takes a time",
		} {
			m := newMachine(t, release).installHandler().installProgram()
			m.boot(userData)
			out, err := harness.Try(nil, filepath.Join(m.root, "usr/bin/hostler"), "internal", "boot-wait",
				"--request", filepath.Join(m.root, "run/cloud-init/hostler-wait"), "--config", filepath.Join(m.root, "etc/hostler/hostler.yaml"),
				"--errors", filepath.Join(m.root, "run/cloud-init/hostler-errors"))
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: with %q the script printed %q, %v, want %q", release, userData, out, err, want)
			}
		}
	}
}
