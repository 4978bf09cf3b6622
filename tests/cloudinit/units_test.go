//go:build integration

package cloudinit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// The unit that links the handler runs before each stage in which cloud-init may read
// it, which is the local one if the datasource says so. The start of a host with the
// unit has no cycle.
func TestHandlerIsLinkedBeforeItIsRead(t *testing.T) {
	for _, release := range releases(t) {
		u := newUnits(t, release)
		if cycle := u.cycle(); cycle != "" {
			t.Errorf("%s: %s", release, cycle)
		}
		for _, stage := range u.initStages() {
			u.write("hostler-cloud-init.service.d/after.conf", "[Unit]\nAfter="+stage+"\n")
			if u.cycle() == "" { // no order contradicts that one
				t.Errorf("%s: the handler may be linked after %s", release, stage)
			}
		}
	}
}

// units is a folder with the units of cloud-init of a release and of hostler.
type units struct {
	*testing.T
	dir string
}

func newUnits(t *testing.T, release string) units {
	t.Helper()
	u := units{t, t.TempDir()}
	top := filepath.Join(harness.Root(t), ".cache/cloud-init", release)
	for _, pattern := range []string{"lib/systemd/system/cloud-*", "usr/lib/systemd/system/cloud-*"} {
		files, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			u.enable(file, filepath.Base(file))
		}
	}
	for _, name := range []string{"hostler-cloud-init.service", "hostlerd.service"} {
		u.enable(filepath.Join(harness.Root(t), "debian/hostler."+name), name)
	}
	return u
}

// enable adds the unit of a file, as its installation does. The generator of
// cloud-init adds its target to the boot.
func (u units) enable(file, name string) {
	u.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		u.Fatal(err)
	}
	u.write(name, string(text))
	_, target, _ := strings.Cut(string(text), "\nWantedBy=")
	target, _, _ = strings.Cut(target, "\n")
	if name == "cloud-init.target" {
		target = "multi-user.target"
	}
	if target == "" {
		return
	}
	wants := filepath.Join(u.dir, target+".wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		u.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(u.dir, name), filepath.Join(wants, name)); err != nil {
		u.Fatal(err)
	}
}

func (u units) write(name, text string) {
	u.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		u.Fatal(err)
	}
}

// initStages lists the units of the stages in which cloud-init may read handlers.
func (u units) initStages() (names []string) {
	u.Helper()
	for _, name := range []string{"cloud-init-local.service", "cloud-init.service", "cloud-init-network.service"} {
		if _, err := os.Stat(filepath.Join(u.dir, name)); err == nil {
			names = append(names, name)
		}
	}
	if len(names) != 2 {
		u.Errorf("the stages of cloud-init are %q", names)
	}
	return names
}

// cycle returns the first cycle of the units' order that systemd finds, or "".
func (u units) cycle() string {
	u.Helper()
	const target = "/usr/lib/systemd/system/multi-user.target"
	script := "systemd-analyze verify --man=no '" + target + "' 2>&1 || true"
	out := harness.Run(u, "env", "SYSTEMD_UNIT_PATH="+u.dir+":"+filepath.Dir(target), "sh", "-c", script)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ordering cycle") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
