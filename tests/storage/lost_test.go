//go:build integration

package storage

import (
	"os"
	"path/filepath"
	"strings"

	"hostler/tests/harness"
)

// lost removes the store below a working machine. Storage on the host is
// recognised by its stamps, nothing is made, mounted or attached again, and the
// declaration, applied again, has no steps (F12, I1, I16).
func (w world) lost(file string, there func(when string)) {
	t := w.t
	t.Helper()
	running := w.must("0", "/bin/busybox stat -c %Y /proc/1")
	before := strings.Join(append(harness.Loops(t, w.Dir), harness.Mounts(t, w.Dir)...), "\n")
	for _, damage := range []struct {
		when string
		do   func(store string) error
	}{
		{"after the store was emptied", func(store string) error { return os.Truncate(store, 0) }},
		{"after the store was removed", os.Remove},
	} {
		w.Kill()
		for _, beside := range []string{"-wal", "-shm"} {
			_ = os.Remove(filepath.Join(w.State(), "state.db"+beside))
		}
		if err := damage.do(filepath.Join(w.State(), "state.db")); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(w.Dir, "log"))
		w.Start()
		w.Run("wait", "declaration/storage", "--for", "ready", "--timeout", "1m")
		there(damage.when)
		w.nothingToDo(file, damage.when)
		w.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "1m")
		if after := strings.Join(append(harness.Loops(t, w.Dir), harness.Mounts(t, w.Dir)...), "\n"); after != before {
			t.Errorf("%s, there is attached and mounted\n%s\nwhich was\n%s", damage.when, after, before)
		}
		if v := w.rows("volumes")["data"]; v.Status != "attached" || v.Declaration != "storage" {
			t.Errorf("%s, the volume is %+v", damage.when, v)
		}
		log, _ := os.ReadFile(filepath.Join(w.Dir, "log"))
		for _, done := range []string{"Made a filesystem", "Created a volume", "Mounted", "Bound", "Attached", "Detached", "Unmounted", "Unbound"} {
			if strings.Contains(string(log), done) {
				t.Errorf("%s, the agent did something to what was there: %s", damage.when, done)
			}
		}
		if !strings.Contains(string(log), "written again from stamps") {
			t.Errorf("%s, the records were not lost at all", damage.when)
		}
	}
	if now := w.must("0", "/bin/busybox stat -c %Y /proc/1"); now != running {
		t.Error("the machine was started again when the store was lost")
	}
}
