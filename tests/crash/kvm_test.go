//go:build integration

package crash_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/harness"
)

// kvmPoints lie on the way from a declaration to a guest of libvirt and back,
// in the order in which a machine passes them.
var kvmPoints = slices.Concat(kvmMaking, kvmEnding)

var (
	kvmMaking = []string{"kvm-define-sent-no-reply", "kvm-overlay-made", "kvm-seed-made", "kvm-defined-not-started", "kvm-start-sent-no-reply"}
	kvmEnding = []string{"kvm-destroyed-files-left", "kvm-files-gone-not-undefined"}
)

// guests is a world whose machines are guests of a libvirt of its own.
type guests struct {
	*world
	server *kvmtest.Server
	image  string
	keep   int // the process of a guest that runs all the time
}

func newGuests(t *testing.T) *guests {
	t.Helper()
	g := &guests{image: kvmtest.TinyReference(t), server: kvmtest.Start(t), world: newWorld(t, nil, "guests")}
	g.write("etc/hostler.yaml", "namespace: guests\nretry-delay: 500ms\ntransient-retry-interval: 5s\ntypes: {kvm: {accelerator: tcg}}\n")
	g.prefix = g.server.Prefix()
	g.start()
	g.hostler("apply", "--allow", "destroy", "-f", g.file("keep"))
	g.settled("keep")
	g.keep = g.server.Guest("keep")
	g.stop()
	return g
}

// file writes a declaration of machines, of that name.
func (g *guests) file(name string, machines ...string) string {
	if name == "keep" {
		machines = []string{"keep"}
	}
	text := "version: 1\nmachines: {}\n"
	if len(machines) > 0 {
		text = "version: 1\nmachines:\n"
	}
	for _, m := range machines {
		text += "  " + m + ": {type: kvm, image: \"" + g.image + "\", memory: 512MiB}\n"
	}
	return g.write(name+".yaml", text)
}

// settled waits until exactly these machines run, each as one guest, nothing
// is left to do and nothing is left of others. K5, Z7.
func (g *guests) settled(names ...string) {
	g.Helper()
	slices.Sort(names)
	harness.Wait(g, "convergence", 2*patience, func() error {
		g.revive()
		known, err := g.machines()
		if err != nil {
			return err
		}
		there := g.server.Names()
		slices.Sort(there)
		if !slices.Equal(sorted(known), names) || !slices.Equal(there, names) {
			return fmt.Errorf("machines %v and guests %v, not %v", sorted(known), there, names)
		}
		for _, name := range names {
			if state := g.server.State(name); known[name].Status != "running" || state != "running" {
				return fmt.Errorf("%s: %+v, guest %s", name, known[name], state)
			}
		}
		return nil
	})
	if !g.revived.IsZero() {
		g.slowest, g.revived = max(g.slowest, time.Since(g.revived)), time.Time{}
	}
	// A root disk, a seed and a log each.
	if files := g.server.Files(); len(files) != 3*len(names) {
		g.Errorf("files %v of %v", files, names)
	}
	for _, name := range names {
		if g.server.Guest(name) == 0 {
			g.Errorf("%s has no process", name)
		}
	}
	if now := g.server.Guest("keep"); g.keep != 0 && now != g.keep {
		g.Errorf("the guest that nobody touched was process %d and is %d", g.keep, now)
	}
}

// dies waits until the agent is dead, as an armed point has it.
func (g *guests) dies(point string) {
	g.Helper()
	harness.Wait(g, "death at "+point, patience, func() error {
		if !g.agent.dead() {
			return errors.New("it lives")
		}
		return nil
	})
	if hits, _ := os.ReadFile(g.path("hits")); !slices.Contains(strings.Fields(string(hits)), point) {
		g.Errorf("%s was not hit", point)
	}
}

// F1, F4, I1, I2, I3: the agent is killed at every point of a guest's life in
// turn, at some of them together with libvirt. The result is one guest, after the
// removal none, and the guest beside it is unchanged.
func TestOnKVM(t *testing.T) {
	g := newGuests(t)
	through := func(points []string, apply string) {
		for i, point := range points {
			g.plan = point + "=kill"
			g.start()
			if i == 0 {
				_, _ = g.try("apply", "--allow", "destroy", "-f", apply)
			}
			g.dies(point)
			if i%2 == 1 {
				g.server.Kill()
				g.server.Run()
			}
		}
		g.revived = time.Now()
		g.start()
	}
	through(kvmMaking, g.file("more", "db"))
	g.settled("keep", "db")
	g.stop()
	through(kvmEnding, g.file("more"))
	g.settled("keep")
	g.stop()
	t.Run("lost replies", func(t *testing.T) {
		g.part(t, func(w *world) {
			inner := *g
			inner.world = w
			inner.lostReplies()
		})
	})
	if long {
		g.everyCell(t)
	}
	t.Logf("the slowest recovery took %v", g.slowest.Round(time.Millisecond))
}

// everyCell tries every point with every action, with and without the end of
// libvirt.
func (g *guests) everyCell(t *testing.T) {
	for _, point := range kvmPoints {
		for _, action := range []string{"kill", "error", "panic", "delay:3s"} {
			for _, libvirt := range []string{"stays", "is killed", "is restarted", "hangs"} {
				t.Run(point+"="+action+", libvirt "+libvirt, func(t *testing.T) {
					g.part(t, func(w *world) {
						inner := *g
						inner.world = w
						inner.cell(point, action, libvirt)
					})
				})
			}
		}
	}
}

func (g *guests) cell(point, action, libvirt string) {
	_ = os.Remove(g.path("hits"))
	g.plan = point + "=" + action + "#1"
	g.start()
	hit := func() bool {
		hits, _ := os.ReadFile(g.path("hits"))
		return slices.Contains(strings.Fields(string(hits)), point)
	}
	met := func() {
		if !hit() || libvirt == "" {
			return
		}
		switch libvirt {
		case "is killed":
			g.server.Kill()
			g.server.Run()
		case "is restarted":
			g.server.Stop()
			g.server.Run()
		case "hangs":
			g.revive()
			g.server.Freeze()
			time.Sleep(5 * time.Second) // that is how long it hangs
			g.server.Thaw()
		}
		libvirt = ""
	}
	for _, machines := range [][]string{{"db"}, nil} {
		g.acknowledged("apply", "--allow", "destroy", "-f", g.file("more", machines...))
		if slices.Contains(kvmMaking, point) == (machines != nil) {
			harness.Wait(g, "the point", 2*patience, func() error {
				if hit() {
					return nil // a dead agent comes back after libvirt, which it would start itself
				}
				g.revive()
				return errors.New("not hit yet")
			})
			met()
		}
		g.settled(append(machines, "keep")...)
	}
	if g.agent.dead() {
		g.revive()
	}
	g.stop()
	want := 0
	if action == "kill" {
		want = 1
	}
	if g.deaths < want || g.deaths > 1 {
		g.Errorf("the agent died %d times", g.deaths)
	}
}

// F7, I3, Z7: libvirt carries out each call and its answer is lost: for the
// definition, the disks, the stamp, the start and the end. Nothing is defined or
// started twice.
func (g *guests) lostReplies() {
	proxy := kvmtest.NewProxy(g, g.server.Socket)
	g.prefix = g.server.Behind(proxy)
	g.start()
	const atOnce = 5 // one of them runs
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for n := range atOnce {
		fmt.Fprintf(&text, "  m%d: {type: kvm, image: %q, memory: 512MiB, running: %v}\n", n, g.image, n == 0)
	}
	for range often(1, 40) {
		proxy.Calls()
		for _, procedure := range []uint32{kvmtest.ProcDefine, kvmtest.ProcVolumeCreate, kvmtest.ProcSetMetadata} {
			proxy.Add(procedure, slices.Repeat([]kvmtest.Fault{kvmtest.Lose}, atOnce)...)
		}
		proxy.Add(kvmtest.ProcCreate, kvmtest.Lose)
		g.hostler("apply", "--allow", "destroy", "-f", g.write("more.yaml", text.String()))
		harness.Wait(g, "the machines", 2*patience, func() error {
			known, err := g.machines()
			for n := range atOnce {
				want := "stopped"
				if n == 0 {
					want = "running"
				}
				if m := known[fmt.Sprint("m", n)]; m.Status != want {
					return fmt.Errorf("%+v, %w", m, err)
				}
			}
			return err
		})
		_, each := proxy.Calls()
		// After too many lost answers a domain was removed and defined again.
		if again := each[kvmtest.ProcUndefineFlags]; each[kvmtest.ProcDefine]-again != atOnce || again > 1 || each[kvmtest.ProcCreate] != 1 {
			g.Errorf("%d definitions, %d ends of one and %d starts of %d machines, of which one runs", each[kvmtest.ProcDefine], again, each[kvmtest.ProcCreate], atOnce)
		}
		if names := g.server.Names(); len(names) != atOnce+1 {
			g.Errorf("guests %v", names)
		}
		proxy.Add(kvmtest.ProcUndefineFlags, slices.Repeat([]kvmtest.Fault{kvmtest.Lose}, atOnce)...)
		proxy.Add(kvmtest.ProcDestroyFlags, kvmtest.Lose)
		g.hostler("apply", "--allow", "destroy", "-f", g.file("more"))
		g.settled("keep")
		if left := proxy.Unused(); len(left) > 0 {
			g.Errorf("answers that were to be lost were not asked for, by procedure: %v", left)
		}
		proxy.Heal()
	}
	g.stop()
	g.prefix = g.server.Prefix()
}
