//go:build integration

package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// An operator attaches the file of a volume that a machine uses. The machine
// keeps its device.
func TestFileIsAttachedByAnotherProgram(t *testing.T) {
	w := start(t)
	// A device with a lower number than the machine's is listed first.
	spare := filepath.Join(w.Dir, "spare")
	if err := os.WriteFile(spare, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	lower := strings.TrimSpace(harness.Run(t, "losetup", "--find", "--show", spare))
	attached := true
	t.Cleanup(func() {
		if attached {
			harness.Run(t, "losetup", "--detach", lower)
		}
	})
	const site = `version: 1
volumes: {data: {provider: loop, size: 8MiB}}
machines: {app: {type: lxd, image: "lxd:tiny", storage: [{volume: data}]}}
`
	file := w.File("site", site)
	w.Apply("site", site)
	const number = "/bin/busybox stat -c %t:%T /dev/hostler-data"
	was := w.must("0", number)
	for _, options := range [][]string{nil, {"--read-only"}, {"--offset", "4096"}} {
		harness.Run(t, "losetup", "--detach", lower)
		attached = false
		harness.Run(t, "losetup", append(options, lower, filepath.Join(w.State(), "volumes", "data.img"))...)
		attached = true
		w.nothingToDo(file, "while another program has the file")
		w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
		if now := w.must("0", number); now != was {
			t.Errorf("the machine's device was %s and is %s", was, now)
		}
	}
}

// An operator puts another file in the place of a volume's, e.g. one from a backup.
// The machine keeps its data while it runs, and has those of the backup from its
// next start, not only after a restart of the host.
func TestFileIsReplaced(t *testing.T) {
	w := start(t)
	const site = `version: 1
volumes: {data: {provider: loop, size: 8MiB}}
machines: {app: {type: lxd, image: "lxd:tiny", storage: [{volume: data}]}}
`
	w.Apply("site", site)
	write := func(text string) {
		t.Helper()
		w.must("0", "echo "+text+" | dd of=/dev/hostler-data bs=512 conv=sync,fsync 2>/dev/null")
	}
	reads := func(when, want string) {
		t.Helper()
		if got := w.must("0", "dd if=/dev/hostler-data bs=512 count=1 2>/dev/null | /bin/busybox tr -d '\\0'"); got != want {
			t.Errorf("%s, the machine reads %q", when, got)
		}
	}
	image := filepath.Join(w.State(), "volumes", "data.img")
	write("before")
	harness.Run(t, "cp", "--sparse=always", image, image+".backup")
	write("after")
	harness.Run(t, "mv", image+".backup", image)
	w.Run("retry", "volume/data")
	w.says("volumes", "data", "machine/app to be stopped", "was replaced")
	reads("while it runs", "after")
	w.Run("stop", "app", "--wait")
	w.Run("start", "app", "--wait")
	reads("after its start", "before")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.nothingToDo(w.File("site", site), "after its start")
}
