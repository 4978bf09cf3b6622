//go:build integration

package crash_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxc/lxctest"
	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

// lxcStages are the stages of a machine's life, each with the points that it
// passes, in this order.
var lxcStages = []struct {
	name, machine string
	points        []failpoint.Point
}{
	{"made", "memory: 32MiB", []failpoint.Point{
		failpoint.LXCUnpacking, failpoint.LXCMaking, failpoint.LXCSnapshot, failpoint.LXCSeeded, failpoint.LXCRenamedNotRecorded,
		failpoint.LXCBeforeStart, failpoint.LXCStartedNotRecorded,
	}},
	{"changed", "memory: 48MiB", []failpoint.Point{failpoint.LXCConfigWritten}},
	{"stopped", "memory: 48MiB, running: false", []failpoint.Point{failpoint.LXCStopping}},
	{"removed", "", []failpoint.Point{failpoint.LXCRenamedAway, failpoint.LXCSubvolumeLeft}},
}

// lxcPoints are the points of all stages.
func lxcPoints() (all []string) {
	for _, stage := range lxcStages {
		for _, point := range stage.points {
			all = append(all, string(point))
		}
	}
	return all
}

// classic is a world whose machines are containers of classic LXC.
type classic struct {
	*world
	host *lxctest.Host
	keep int // the process of a guest that runs all the time
	// retries has an error of db retried as an operator would: a panic of work that
	// operations share waits for one.
	retries bool
}

func newClassic(t *testing.T) *classic {
	t.Helper()
	harness.RaiseLimits(t)
	harness.KeepHostLock(t)
	const namespace = "crashlxc"
	c := &classic{world: newWorld(t, nil, namespace)}
	c.write("etc/hostler.yaml", "namespace: "+namespace+"\nretry-delay: 500ms\ntransient-retry-interval: 5s\ntypes: {lxc: {path: "+c.path("lxc")+"}}\n")
	c.host = lxctest.Start(t, c.path("lxc"), namespace)
	t.Cleanup(c.kill) // it would start its guests again
	c.prefix = c.host.Prefix()
	c.start()
	c.hostler("apply", "--allow", "destroy", "-f", c.write("keep.yaml", "version: 1\nmachines:\n  keep: {type: lxc, image: busybox/1}\n"))
	c.settled("")
	c.keep = c.host.Process("keep")
	c.stop()
	return c
}

// file declares the machine db as it is in a stage.
func (c *classic) file(machine string) string {
	text := "version: 1\nmachines: {}\n"
	if machine != "" {
		text = "version: 1\nmachines:\n  db: {type: lxc, image: busybox/1, " + machine + "}\n"
	}
	return c.write("more.yaml", text)
}

// settled waits until the machine keep, and db if it is declared, are as declared,
// each as one instance, and nothing is left to do. K5, Z7.
func (c *classic) settled(machine string) {
	c.Helper()
	want := map[string]string{"keep": "running"}
	if machine != "" {
		want["db"] = "running"
		if strings.Contains(machine, "running: false") {
			want["db"] = "stopped"
		}
	}
	files := []string{"plan", "-q", "-f", c.path("keep.yaml")}
	if machine != "" {
		files = append(files, "-f", c.path("more.yaml"))
	}
	harness.Wait(c, "convergence", 2*patience, func() error {
		c.revive()
		known, err := c.machines()
		if err != nil {
			return err
		}
		if c.retries && known["db"].Status == "error" {
			_, _ = c.try("retry", "machine/db")
		}
		if there := c.host.Names(); !slices.Equal(sorted(known), sorted(want)) || !slices.Equal(there, sorted(want)) {
			return fmt.Errorf("machines %v and instances %v, not %v", sorted(known), there, sorted(want))
		}
		for name, status := range want {
			if runs := c.host.Process(name) != 0; known[name].Status != status || runs != (status == "running") {
				return fmt.Errorf("%s: %+v, it runs: %v", name, known[name], runs)
			}
		}
		if left := c.host.Left(); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		_, err = c.try(files...)
		return err
	})
	if !c.revived.IsZero() {
		c.slowest, c.revived = max(c.slowest, time.Since(c.revived)), time.Time{}
	}
	if now := c.host.Process("keep"); c.keep != 0 && now != c.keep {
		c.Errorf("the guest that nobody touched was process %d and is %d", c.keep, now)
	}
}

// hit says whether the agent came to a point.
func (c *classic) hit(point string) bool {
	hits, _ := os.ReadFile(c.path("hits"))
	return slices.Contains(strings.Fields(string(hits)), point)
}

// dropImage removes the unpacked image, so that it is unpacked again.
func (c *classic) dropImage() {
	c.Helper()
	c.host.Run("sh", "-c", `for i in "$0"/*; do test ! -e "$i" || btrfs -q subvolume delete "$i"; done`, filepath.Join(c.path("lxc"), ".crashlxc/pool/images"))
}

// F1, I1, I2, I3: the agent is killed at every point of a container's life in turn.
// The result is one container, after the removal none, and the guest beside it is
// unchanged.
func TestOnLXC(t *testing.T) {
	c := newClassic(t)
	c.dropImage()
	for _, stage := range lxcStages {
		for i, point := range stage.points {
			c.plan = string(point) + "=kill"
			c.start()
			if i == 0 {
				_, _ = c.try("apply", "--allow", "destroy", "-f", c.file(stage.machine))
			}
			harness.Wait(c, "death at "+string(point), patience, func() error {
				if !c.agent.dead() {
					return errors.New("it lives")
				}
				return nil
			})
			if !c.hit(string(point)) {
				c.Errorf("%s was not hit", point)
			}
		}
		c.revived = time.Now()
		c.start()
		c.settled(stage.machine)
		c.stop()
	}
	if long {
		for _, point := range lxcPoints() {
			for _, action := range []string{"kill", "error", "panic", "delay:3s"} {
				t.Run(point+"="+action, func(t *testing.T) {
					c.part(t, func(w *world) {
						inner := *c
						inner.world = w
						inner.cell(point, action)
					})
				})
			}
		}
	}
	t.Logf("the slowest recovery took %v", c.slowest.Round(time.Millisecond))
}

// cell leads db through all stages with one point armed.
func (c *classic) cell(point, action string) {
	_ = os.Remove(c.path("hits"))
	if point == string(failpoint.LXCUnpacking) {
		c.dropImage()
	}
	if slices.Contains(c.host.Names(), "db") { // a cell that failed left it
		c.start()
		c.acknowledged("apply", "--allow", "destroy", "-f", c.file(""))
		c.settled("")
		c.stop()
	}
	c.plan, c.retries = point+"="+action+"#1", action == "panic"
	c.start()
	for _, stage := range lxcStages {
		c.acknowledged("apply", "--allow", "destroy", "-f", c.file(stage.machine))
		c.settled(stage.machine)
	}
	if c.agent.dead() {
		c.revive()
	}
	c.stop()
	if !c.hit(point) {
		c.Errorf("the point was never hit")
	}
	want := 0
	if action == "kill" {
		want = 1
	}
	if c.deaths < want || c.deaths > 1 {
		c.Errorf("the agent died %d times", c.deaths)
	}
}
