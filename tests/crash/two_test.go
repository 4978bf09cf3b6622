//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// I12: of two agents on one state directory the second ends within 2 s and
// names the first.
func twoAgents(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "two")
	w.start()
	// Of another namespace, so that the state directory alone is in its way.
	config := w.write("etc-2/hostler.yaml", "namespace: two-more\n")
	began := time.Now()
	_, err := harness.Try(w.folders(), "nsenter", "--mount="+w.room.String(), filepath.Join(w.bin, "hostlerd"),
		"--config", config, "--state-dir", w.path("state"), "--run-dir", w.path("run-2"))
	took := time.Since(began)
	if err == nil {
		t.Fatal("a second agent ended well")
	}
	for _, want := range []string{"another agent", fmt.Sprintf("pid %d", w.agent.cmd.Process.Pid), w.path("state")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
	if _, err := os.Stat(w.path("run-2")); err == nil {
		t.Error("it left its run directory behind")
	}
	if took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := w.get("/v1/version"); err != nil {
		t.Errorf("the first agent: %v", err)
	}
}

// Two agents of different namespaces on one daemon never change each other's
// instances, in any harvest mode.
func twoNamespaces(t *testing.T, lxd *lxdtest.Server) {
	left, right := newWorld(t, lxd, "left"), newWorld(t, lxd, "right")
	left.start()
	right.start()
	l := left.declare("l", map[string]int{"l1": 32, "l2": 32})
	r := right.declare("r", map[string]int{"r1": 32})
	left.hostler("apply", "--allow", "destroy", "-f", l.path)
	right.hostler("apply", "--allow", "destroy", "-f", r.path)
	lefts, rights := left.converge(nil, l), right.converge(nil, r)
	left.hostler("harvest", "all")
	right.hostler("harvest", "all")
	left.stop()
	left.start()
	left.converge(lefts, l)
	right.converge(rights, r)

	// A name that the other agent's instance has is a reported conflict, and
	// nothing changes.
	taken := right.declare("taken", map[string]int{"l1": 32})
	if _, err := right.try("apply", "--allow", "destroy", "-f", taken.path); err == nil || !strings.Contains(err.Error(), `namespace "left"`) {
		t.Errorf("a declaration of a taken name: %v", err)
	}
	harness.Wait(t, "the conflict", patience, func() error {
		known, err := right.machines()
		if m := known["l1"]; err != nil || m.Status != "error" || !strings.Contains(m.Message, `namespace "left"`) {
			return fmt.Errorf("%+v, %w", m, err)
		}
		return nil
	})
	right.hostler("delete", "declaration/taken")
	right.converge(rights, r)
	left.converge(lefts, l)
	// Deleting everything on one side leaves the other as it is.
	right.hostler("delete", "declaration/r")
	right.converge(nil)
	left.converge(lefts, l)
}
