package storageprovisioner

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// S5, S12, S30: records, instances, failures and restarts in any order lead to
// the same end; no step happens before its preconditions (the fake host refuses
// it, and that fails the test), and a plan made at the end is empty.
func TestArrivalOrders(t *testing.T) {
	want := newRig(t)
	want.web()
	want.machine("db", spec.Attachment{Filesystem: "logs", Path: "/log"})
	want.pass()
	end, sources := numbered(want.host.state()), numbered(want.sources())
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		arrivals := map[string]func(){
			"data":    func() { r.volume("data", spec.Volume{}) },
			"raw":     func() { r.volume("raw", spec.Volume{Allocation: spec.AllocationSparse}) },
			"www":     func() { r.filesystem("www", spec.Filesystem{Volume: "data"}) },
			"scratch": func() { r.filesystem("scratch", spec.Filesystem{Provider: "tmpfs"}) },
			"logs":    func() { r.filesystem("logs", spec.Filesystem{Provider: "rootfs", Shared: true}) },
			"web":     func() { r.machine("web", webStorage...) },
			"db":      func() { r.machine("db", spec.Attachment{Filesystem: "logs", Path: "/log"}) },
		}
		var names []string
		for name := range arrivals {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range rapid.Permutation(names).Draw(t, "order") {
			arrivals[name]()
			r.disturb(t)
		}
		r.settle()
		if got := numbered(r.host.state()); got != end {
			t.Fatalf("got\n%s\nwant\n%s\nafter\n%s", got, end, strings.Join(r.host.calls, "\n"))
		}
		if got := numbered(r.sources()); got != sources {
			t.Fatalf("got\n%s\nwant\n%s", got, sources)
		}
		r.idle()
	})
}

// Removals in any order leave nothing, and no storage is detached while an
// instance uses it (the fake host refuses that).
func TestRemovalOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		r.web()
		r.machine("db", spec.Attachment{Filesystem: "logs", Path: "/log"})
		r.settle()
		r.instance("web")
		r.instance("db")
		steps := []string{"volume/data", "volume/raw", "filesystem/www", "filesystem/scratch", "filesystem/logs", "dies web", "dies db"}
		gone := []string{"web", "db"}
		for _, step := range rapid.Permutation(steps).Draw(t, "order") {
			if kind, name, ok := strings.Cut(step, "/"); ok {
				r.life(kind, name, state.Dying)
			} else {
				r.life(spec.KindMachine, strings.TrimPrefix(step, "dies "), state.Dying)
			}
			r.disturb(t)
		}
		for _, machine := range rapid.Permutation(gone).Draw(t, "gone") {
			r.gone(machine)
			r.disturb(t)
		}
		r.settle()
		if r.host.state() != "" || len(r.store.objects) > 0 {
			t.Fatalf("left over\n%s\n%v\nafter\n%s", r.host.state(), r.store.objects, strings.Join(r.host.calls, "\n"))
		}
	})
}

// disturb makes a random event happen: a pass, a restart of the agent, a
// restart of the host, or a failure that begins or ends.
func (r *rig) disturb(t *rapid.T) {
	switch rapid.SampledFrom([]string{"nothing", "pass", "restart", "reboot", "fail", "mend"}).Draw(t, "then") {
	case "pass":
		r.pass()
	case "restart":
		r.restart()
		if err := r.w.Prepare(context.Background()); err != nil {
			t.Fatal(err)
		}
	case "reboot":
		used := r.host.used
		r.host.reboot()
		r.host.used = used
		r.restart()
	case "fail":
		action := rapid.SampledFrom([]string{"create", "attach", "detach", "destroy"}).Draw(t, "action")
		object := rapid.SampledFrom([]string{"volume/data", "volume/raw", "filesystem/www", "filesystem/logs"}).Draw(t, "object")
		r.host.fails[action+" "+object] = errors.New("no luck")
		r.pass()
	case "mend":
		clear(r.host.fails)
	}
}

// settle lets time pass until no retry is left.
func (r *rig) settle() {
	clear(r.host.fails)
	for range 50 {
		next := r.pass()
		if next.IsZero() {
			return
		}
		r.now = next
	}
	r.t.Fatalf("never settles: %v", r.host.calls)
}

// idle checks that the plan is empty.
func (r *rig) idle() {
	l, err := r.w.look(context.Background())
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	if steps := Plan(l.desired, l.observed, l.policy); len(steps) > 0 {
		r.t.Fatalf("still planned: %v", steps)
	}
}

// numbered removes the numbers of loop devices from a text: they depend on the
// order of attaching.
func numbered(text string) string {
	return regexp.MustCompile(`/dev/loop[0-9]+`).ReplaceAllString(text, "/dev/loop")
}

// Planning is fast enough for thousands of attachments.
func BenchmarkPlan(b *testing.B) {
	r := newRig(b)
	for i := range 1000 {
		name := fmt.Sprintf("f%d", i)
		r.filesystem(name, spec.Filesystem{Provider: "tmpfs"})
		r.machine(fmt.Sprintf("m%d", i), spec.Attachment{Filesystem: name, Path: "/srv"})
	}
	r.pass()
	l, err := r.w.look(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if steps := Plan(l.desired, l.observed, l.policy); len(steps) > 0 {
			b.Fatal(steps[0])
		}
		newPlanner(l.desired, l.observed, l.policy).assess(nil)
	}
}
