//go:build integration

package machines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

const tiny = `version: 1
machines:
  web: {type: lxd, image: "lxd:tiny", cpus: 1, memory: 64MiB}
  db:  {type: lxd, image: "lxd:tiny"}
`

func start(t *testing.T) (*lxdtest.Server, *harness.Agent) {
	t.Helper()
	s := lxdtest.Start(t)
	a := harness.NewAgent(t, s.Dir)
	a.Start()
	return s, a
}

// F11: files of a deleted container that a power cut brought back are reported
// and kept, and a new machine of that name gets none of them.
func TestForgottenContainer(t *testing.T) {
	s, a := start(t)
	a.Run("apply", "--allow", "destroy", "-f", a.File("site", tiny), "--wait", "--timeout", "1m")
	files := filepath.Join(s.Dir, "storage-pools", s.Pool, "containers")
	harness.Run(t, "btrfs", "-q", "subvolume", "snapshot", filepath.Join(files, "web"), filepath.Join(files, "again"))
	harness.Run(t, "touch", filepath.Join(files, "again", "rootfs", "old"))
	a.Stop()
	a.Start()
	a.Run("apply", "--allow", "destroy", "-f", a.File("more", "version: 1\nmachines:\n  again: {type: lxd, image: \"lxd:tiny\"}\n"), "--wait", "--timeout", "1m")
	if _, err := os.Stat(filepath.Join(files, "again", "rootfs", "old")); err == nil {
		t.Error("the new machine has the files of the former one")
	}
	kept, err := filepath.Glob(filepath.Join(s.Dir, "storage-pools", s.Pool, "hostler-aside", "again.*", "rootfs", "old"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	place := filepath.Dir(filepath.Dir(kept[0]))
	for _, command := range []string{"status", "events"} {
		if out := a.Run(command); !strings.Contains(out, place) {
			t.Errorf("%s does not name %s:\n%s", command, place, out)
		}
	}
}
