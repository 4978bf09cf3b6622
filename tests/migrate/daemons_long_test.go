//go:build integration && long

package migrate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

// killDaemons kills LXD and Incus, and starts both again.
func (w world) killDaemons() {
	w.t.Helper()
	w.lxd.Kill()
	w.incus.Kill()
	w.lxd.Run()
	w.incus.Run()
}

// removeLeftBackups removes the snapshots that LXD made for backups and did not
// remove when it was killed. They are read-only, and LXD cannot remove its pool
// with them.
func (w world) removeLeftBackups() {
	left, _ := filepath.Glob(filepath.Join(w.lxd.Dir, "storage-pools", w.lxd.Pool, "backup.*", "*"))
	for _, snapshot := range left {
		harness.Run(w.t, "btrfs", "property", "set", "-f", "-ts", snapshot, "ro", "false")
	}
}

// copying reports whether LXD is making a backup or keeps one.
func (w world) copying() bool {
	backups, _ := os.ReadDir(filepath.Join(w.lxd.Dir, "backups", "instances"))
	return len(backups) > 0
}

// LXD and Incus are killed in the middle of the copies and at each step of a
// move. Each move goes on or leaves the machine in LXD as it was, and moves when
// it is asked for again. All data is as before.
func TestDaemonsKilled(t *testing.T) {
	w := open(t)
	w.fill()
	before := w.look()
	w.Stop()
	var plan []string
	for _, point := range failpoint.Migrate {
		plan = append(plan, string(point)+"=delay:2s#1")
	}
	w.arm(strings.Join(plan, ";"))
	w.Ready()
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	kills, copies := map[failpoint.Point]bool{}, 0
	harness.Wait(t, "the migration", 8*time.Minute, func() error {
		for _, point := range failpoint.Migrate {
			if !kills[point] && w.hits(point) > 0 {
				kills[point] = true
				w.killDaemons()
			}
		}
		if copies < machines && w.copying() {
			copies++
			w.killDaemons()
		}
		var open []error
		var again []string
		for _, m := range w.rows() {
			switch {
			case m.Migration == nil || m.Migration.Phase == spec.MigrationFailed && m.Status == spec.MachineRunning:
				again = append(again, m.Name)
			case m.Migration.Phase != spec.MigrationDone || m.Status != spec.MachineRunning:
				open = append(open, fmt.Errorf("%s: %s, %s %s", m.Name, m.Migration.Phase, m.Status, m.Message))
			}
		}
		for _, name := range again {
			_, err := w.Try("migrate", "lxd", "incus", name, "-y", "--timeout", "1s") // it begins
			open = append(open, fmt.Errorf("%s: begun again, %w", name, err))
		}
		return errors.Join(open...)
	})
	w.removeLeftBackups()
	t.Logf("both daemons were killed during %d copies and at %d of %d steps", copies, len(kills), len(failpoint.Migrate))
	if copies == 0 || len(kills) < len(failpoint.Migrate) {
		t.Errorf("killed at %v", kills)
	}
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.compare(before, w.look())
	if in := w.lxd.Names(); len(in) > 0 {
		t.Errorf("left in LXD: %v", in)
	}
	if in := w.incus.Names(); len(in) != machines {
		t.Errorf("in Incus: %v", in)
	}
}
