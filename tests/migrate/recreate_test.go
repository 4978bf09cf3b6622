//go:build integration

package migrate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

// hits counts how often the agent has been at a point.
func (w world) hits(point failpoint.Point) (n int) {
	text, _ := os.ReadFile(filepath.Join(w.Dir, "hits"))
	for hit := range strings.FieldsSeq(string(text)) {
		if hit == string(point) {
			n++
		}
	}
	return n
}

// While the original of a moved machine is still there, the machine is made again
// if the user permits it.
func TestRecreateOfAMovedMachine(t *testing.T) {
	w := open(t)
	w.Stop()
	w.arm(string(failpoint.MigrateReady) + "=delay:2m#1")
	w.Ready()
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	_, _ = w.Try("migrate", "lxd", "incus", "m6", "-y", "--timeout", "1s") // it begins
	harness.Wait(t, "the moved machine", time.Minute, func() error {
		if w.hits(failpoint.MigrateReady) == 0 {
			return errors.New("it moves")
		}
		return nil
	})
	created := func() string {
		for _, m := range w.rows() {
			if m.Name == "m6" {
				return fmt.Sprint(m.Created)
			}
		}
		return ""
	}
	before := created()
	file := w.site("lxd")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "  m6: {type: lxd,", "  m6: {type: incus, cloud-init: {user-data: \"#cloud-config\\n{}\\n\"},", 1)
	w.Run("apply", "--allow", "recreate", "-f", w.File("site", changed), "--wait", "--timeout", "90s")
	if after := created(); after == before {
		t.Errorf("m6 was made at %s and was not made again", before)
	}
	// The agent stands at the point. The next agent keeps the original, whose data
	// the new instance lacks.
	w.Kill()
	w.arm("")
	w.Ready()
	harness.Wait(t, "the end of the migration", time.Minute, func() error {
		if out := w.Run("events", "machine/m6"); !strings.Contains(out, "lxd/m6 is kept") {
			return errors.New(out)
		}
		return nil
	})
	if in := w.lxd.Names(); !slices.Contains(in, "m6") {
		t.Error("the original is gone")
	}
}
