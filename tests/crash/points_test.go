//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

// aptPoints lie inside an installation by apt: they are hit in a test host.
var aptPoints = []string{"init-during-download", "init-during-unpack", "init-during-postinst"}

// initPoints lie in the initialiser, without apt.
var initPoints = []string{
	"init-lock-held-before-apt", "init-after-apt-before-record", "init-waiting-for-daemon",
	"init-after-first-configuration", "init-conf-tmp-written", "init-conf-renamed",
}

// groups are the points that lie on the way from a declaration to a container
// of LXD or Incus or a guest of libvirt.
var groups = regexp.MustCompile(`^(store|init|lxd|kvm|api)-`)

// elsewhere are the others but those of classic LXC: they are tried where what they
// belong to is.
var elsewhere = slices.Concat(failpoint.Storage, failpoint.Networks, failpoint.Uplinks, failpoint.Migrate)

// points lists the crash points that the agent itself names.
func points(t *testing.T) []string {
	t.Helper()
	lines := strings.Fields(harness.Run(t, binaries(t)+"/hostlerd", "internal", "failpoints"))
	if len(lines) < 3 || lines[0] != "enabled" || lines[1] != "true" {
		t.Fatalf("the agent has no crash points: %v", lines)
	}
	return lines[2:]
}

// cell is one run of the scenario.
type cell struct {
	point, action string
	nth           int
	restartLXD    bool
}

func (c cell) String() string {
	s := fmt.Sprintf("%s=%s#%d", c.point, c.action, c.nth)
	if c.restartLXD {
		s += ",daemon"
	}
	return s
}

// common are the points that every write of the store passes: which pass is
// killed makes the difference.
var common = []string{"store-after-effect-before-result", "store-after-result-before-ack", "store-event-append"}

// cells lists the runs on a daemon: in the sample each point once with kill, at
// a moment in the middle of things, on one daemon or the other.
func cells(t *testing.T, daemon lxdtest.Daemon) (all []cell) {
	for i, point := range points(t) {
		if !groups.MatchString(point) || slices.Contains(slices.Concat(aptPoints, initPoints, kvmPoints), point) {
			continue
		}
		moments := []int{1}
		if slices.Contains(common, point) {
			moments = []int{9}
		}
		if !long {
			// Of the driver's own points every third is tried on Incus instead.
			if onIncus := strings.HasPrefix(point, "lxd-") && i%3 == 2; onIncus == (daemon == lxdtest.Incus) {
				all = append(all, cell{point, "kill", moments[0], i%4 == 3})
			}
			continue
		}
		if slices.Contains(common, point) {
			moments = []int{1, 2, 3, 5, 7, 9, 11, 13}
			if point == "store-event-append" {
				moments = moments[:6] // the scenario has ten events
			}
		}
		for _, nth := range moments {
			for _, action := range []string{"kill", "error", "panic"} {
				all = append(all, cell{point, action, nth, false})
			}
			all = append(all, cell{point, "kill", nth, true}, cell{point, "delay:3s", nth, true})
		}
	}
	return all
}

// F1, I1, I2, I3, I7, I8: at whatever point the agent is killed, the next agent
// finds everything and completes it.
func crashPoints(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "points")
	keep := w.declare("keep", map[string]int{"keep": 32})
	w.start()
	w.hostler("apply", "--allow", "destroy", "-f", keep.path)
	w.converge(nil, keep)
	w.stop()
	for _, c := range cells(t, lxd.Daemon) {
		if !t.Run(c.String(), func(t *testing.T) { w.part(t, func(w *world) { w.cell(c, keep) }) }) {
			t.Logf("the agent's log:\n%s", tail(w.path("log"), 200))
			// What one run left must not be held against the next.
			w.kill()
			w.loseStore()
			w.sweep()
			w.start()
			w.hostler("apply", "--allow", "destroy", "-f", keep.path)
			w.converge(nil, keep)
			w.stop()
		}
	}
	t.Logf("the slowest recovery took %v", w.slowest.Round(time.Millisecond))
}

// cell runs the scenario with one point armed: two machines are declared,
// then one is changed and the other removed, then the first is removed, while
// a third runs from before.
func (w *world) cell(c cell, keep declaration) {
	_ = os.Remove(w.path("hits"))
	before, err := w.guests()
	if err != nil {
		w.Fatal(err)
	}
	switch c.point {
	case "lxd-image-downloading":
		w.forgetImages()
	case "store-mid-migration":
		w.loseStore()
	}
	w.plan = fmt.Sprintf("%s=%s#%d", c.point, c.action, c.nth)
	w.restartLXD = c.restartLXD
	if strings.HasPrefix(c.action, "delay") {
		w.atHit = c.point
	}
	w.start()
	if strings.HasPrefix(c.point, "store-backup") {
		w.writeMuch()
	}
	two := w.declare("two", map[string]int{"a": 32, "b": 32})
	w.acknowledged("apply", "--allow", "destroy", "-f", two.path)
	running := w.converge(before, keep, two)
	one := w.declare("two", map[string]int{"a": 48})
	w.acknowledged("apply", "--allow", "destroy", "-f", one.path)
	running = w.converge(running, keep, one)
	if got := running["a"].Memory; got != fmt.Sprint(48<<20) {
		w.Errorf("the memory of a is %s", got)
	}
	none := w.declare("two", nil)
	w.acknowledged("apply", "--allow", "destroy", "-f", none.path)
	w.converge(running, keep)
	w.volumes()
	if w.agent.dead() {
		w.revive()
	}
	w.stop()
	w.check(c)
}

// check compares the result with the declaration.
func (w *world) check(c cell) {
	hits, _ := os.ReadFile(w.path("hits"))
	if !slices.Contains(strings.Fields(string(hits)), c.point) {
		w.Errorf("the point was never hit")
	}
	want := 0
	if c.action == "kill" {
		want = 1
	}
	// A worker's panic ends the worker and not always the agent; an error
	// at the store's opening ends the agent in good order.
	if w.deaths < want || w.deaths > 1 {
		w.Errorf("the agent died %d times", w.deaths)
	}
	w.Logf("deaths: %d, recovery: %v", w.deaths, w.slowest.Round(time.Millisecond))
}

// forgetImages has the daemon forget the images, so that the next one is uploaded.
func (w *world) forgetImages() {
	w.Helper()
	var images []string
	if err := w.lxd.API("GET", "/1.0/images", nil, &images); err != nil {
		w.Fatal(err)
	}
	for _, path := range images {
		if err := w.lxd.API("DELETE", path, nil, nil); err != nil {
			w.Fatal(err)
		}
	}
}

// loseStore removes the store with every file about it; the image cache stays.
func (w *world) loseStore() {
	w.Helper()
	w.removeStore("state.db", "state.db-wal", "state.db-shm", "state.db.last-good", "store-id", "store-mark")
}

func (w *world) removeStore(names ...string) {
	w.Helper()
	for _, name := range names {
		if err := os.Remove(w.path("state/" + name)); err != nil && !os.IsNotExist(err) {
			w.Fatal(err)
		}
	}
}

// writeMuch makes so many writes that the store copies itself.
func (w *world) writeMuch() {
	w.Helper()
	for n := 0; n < 300 && !w.agent.dead(); n++ {
		mode := []string{"none", "destroyed"}[n%2]
		if err := w.request("PUT", "/v1/harvest", `{"mode":"`+mode+`"}`); err != nil {
			select {
			case <-w.agent.exited:
			case <-time.After(time.Second):
				w.Logf("a write failed: %v", err)
			}
		}
	}
	if w.agent.dead() {
		w.revive()
	}
	w.acknowledged("harvest", "destroyed")
}
