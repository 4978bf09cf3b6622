//go:build integration

package crash_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// harvestAll has the agent delete all its orphans.
func (w *world) harvestAll() {
	w.write("etc/hostler.yaml", "namespace: "+w.namespace+"\nharvest: all\nretry-delay: 500ms\ntransient-retry-interval: 5s\n")
}

// passes waits until the provisioner has looked at everything n times more.
func (w *world) passes(n int) {
	w.Helper()
	first := -1
	harness.Wait(w, "the provisioner's passes", patience, func() error {
		out, err := w.try("status", "-o", "json")
		if err != nil {
			return err
		}
		var status struct {
			Workers []struct {
				Name   string
				Passes int
			}
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		for _, worker := range status.Workers {
			if worker.Name != "provisioner-"+w.daemon().Name {
				continue
			}
			if first < 0 {
				first = worker.Passes
			}
			if worker.Passes >= first+n {
				return nil
			}
		}
		// A change of the host's record has it look again; both modes delete
		// what is unknown.
		for _, mode := range []string{"unknown", "all"} {
			if _, err := w.try("harvest", mode); err != nil {
				return err
			}
		}
		return fmt.Errorf("not %d passes since the first look", n)
	})
}

// A whole state directory of before is put back, as a restored backup is, with
// all its marks: machines made after the copy are known again, and none is
// deleted.
func olderState(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "older")
	w.harvestAll()
	w.start()
	first := w.declare("first", map[string]int{"one": 32})
	w.hostler("apply", "--allow", "destroy", "-f", first.path)
	w.converge(nil, first)
	w.stop()
	harness.Run(t, "cp", "-a", w.path("state"), w.path("copy"))
	w.start()
	second := w.declare("second", map[string]int{"two": 32, "three": 48})
	w.hostler("apply", "--allow", "destroy", "-f", second.path)
	before := w.converge(nil, first, second)
	w.stop()

	if err := os.RemoveAll(w.path("state")); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, "cp", "-a", w.path("copy"), w.path("state"))
	for _, when := range []string{"put back", "started again"} {
		w.start()
		w.converge(before, first, second)
		w.passes(2)
		w.converge(before, first, second)
		for _, command := range []string{"status", "doctor", "events"} {
			if out, _ := w.try(command); !strings.Contains(out, "older copy") {
				t.Errorf("%s: `hostler %s` does not say that the store was an older copy:\n%s", when, command, out)
			}
		}
		w.stop()
	}
	// What is made now is told from what an older copy does not know, too.
	w.start()
	third := w.declare("third", map[string]int{"four": 32})
	w.hostler("apply", "--allow", "destroy", "-f", third.path)
	before = w.converge(before, first, second, third)
	w.stop()
	if err := os.RemoveAll(w.path("state")); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, "cp", "-a", w.path("copy"), w.path("state"))
	w.start()
	harness.Wait(t, "all machines to be known", patience, func() error {
		known, err := w.machines()
		if err == nil && len(known) < 3 {
			err = fmt.Errorf("it knows %v", known)
		}
		return err
	})
	w.passes(2)
	w.alive(before)
}

// alive fails unless the guests run on as they did.
func (w *world) alive(before map[string]guest) {
	w.Helper()
	after, err := w.guests()
	if err != nil {
		w.Fatal(err)
	}
	for name := range before {
		if _, still := after[name]; !still {
			w.Errorf("%s was deleted", name)
		}
	}
	w.untouched(before, after)
}

// oneNamespace: of two agents with one namespace and a state directory each,
// the second is refused and names the first.
func oneNamespace(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "same")
	w.start()
	one := w.declare("one", map[string]int{"one": 32})
	w.hostler("apply", "--allow", "destroy", "-f", one.path)
	w.converge(nil, one)
	for _, extra := range []string{"fresh", "copied"} {
		if extra == "copied" {
			harness.Run(t, "cp", "-a", w.path("state"), w.path(extra))
		}
		began := time.Now()
		_, err := harness.Try(w.folders(), "timeout", "20", "nsenter", "--mount="+w.room.String(), filepath.Join(w.bin, "hostlerd"),
			"--config", w.path("etc/hostler.yaml"), "--state-dir", w.path(extra), "--run-dir", w.path("run-2"))
		if err == nil {
			t.Fatal("a second agent ended well")
		}
		for _, want := range []string{fmt.Sprintf("process %d", w.agent.cmd.Process.Pid), w.path("state"), `namespace "same"`, lxd.Dir} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the message lacks %q: %v", want, err)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	if err := w.get("/v1/version"); err != nil {
		t.Errorf("the first agent: %v", err)
	}
	w.stop()
	w.start() // the lock is free when its holder ends
	w.kill()
	w.start()
	w.converge(nil, one)
}

// oneNamespaceUnlocked: each world has a /run/hostler of its own, so that the
// lock is no obstacle: neither agent deletes the other's machines all the same.
func oneNamespaceUnlocked(t *testing.T, lxd *lxdtest.Server) {
	left, right := newWorld(t, lxd, "twins"), newWorld(t, lxd, "twins")
	t.Cleanup(func() { // each world sweeps the instances of both
		left.kill()
		right.kill()
	})
	runs := func(w *world, names ...string) {
		t.Helper()
		harness.Wait(t, "machines to run", patience, func() error {
			known, err := w.machines()
			for _, name := range names {
				if m := known[name]; err == nil && m.Status != "running" {
					err = fmt.Errorf("%s: %+v", name, m)
				}
			}
			return err
		})
	}
	for _, w := range []*world{left, right} {
		w.harvestAll()
		w.start()
		w.hostler("apply", "--allow", "destroy", "-f", w.declare("none", nil).path)
	}
	left.hostler("apply", "--allow", "destroy", "-f", left.declare("l", map[string]int{"l1": 32, "l2": 32}).path)
	runs(left, "l1", "l2")
	right.hostler("apply", "--allow", "destroy", "-f", right.declare("r", map[string]int{"r1": 32}).path)
	runs(right, "r1")
	before, err := left.guests()
	if err != nil || len(before) != 3 {
		t.Fatalf("the guests are %v: %v", before, err)
	}
	for _, w := range []*world{left, right} {
		w.passes(2)
		left.alive(before)
		w.stop()
		w.start()
		w.passes(2)
		left.alive(before)
	}
	if out, _ := right.try("doctor"); !strings.Contains(out, lxd.Daemon.Name+"/l1") || !strings.Contains(out, "another store") {
		t.Errorf("`hostler doctor` does not name the other's:\n%s", out)
	}
	// A name that the other agent's instance has is reported as a conflict.
	taken := right.declare("taken", map[string]int{"l1": 32})
	if _, err := right.try("apply", "--allow", "destroy", "-f", taken.path); err == nil || !strings.Contains(err.Error(), "another store") {
		t.Errorf("a declaration of a taken name: %v", err)
	}
	right.hostler("delete", "declaration/taken")
	right.hostler("delete", "declaration/r")
	harness.Wait(t, "the end of r1", patience, func() error {
		there, err := left.guests()
		if _, still := there["r1"]; err == nil && still {
			err = fmt.Errorf("it is still there")
		}
		return err
	})
	delete(before, "r1")
	left.alive(before)
}
