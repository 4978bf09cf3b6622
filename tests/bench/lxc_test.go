//go:build integration

package bench

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/tests/harness"
)

// BenchmarkLXC makes, keeps and removes containers of classic LXC with the
// driver, as many at once as the agent does. lxd-benchmark and LXC's own tools
// make the same containers on the same bridge, round by round.
func BenchmarkLXC(b *testing.B) {
	r := newLXCRig(b)
	r.part(b, "Fleet", r.fleet)
	r.make(names("m", kept))
	r.part(b, "List", r.list)
	r.part(b, "Death", r.deaths)
	r.remove(names("m", kept))
}

// part runs a part of the benchmark, which reports its own failures.
func (r *lxcRig) part(b *testing.B, name string, f func()) {
	b.Run(name, func(inner *testing.B) {
		defer func() { r.b, r.lxd.b = b, b }()
		r.b, r.lxd.b = inner, inner
		f()
	})
}

// kept is the number of containers that are listed.
const kept = 100

func (r *lxcRig) fleet() {
	all := names("c", fleet)
	create, remove := r.byTools()
	var ours, gone, parallel, loop, destroyed []time.Duration
	for range rounds {
		ours = append(ours, took(func() { r.make(all) }))
		gone = append(gone, took(func() { r.remove(all) }))

		parallel = append(parallel, took(func() {
			r.lxd.run("lxd-benchmark", "launch", "--count", fmt.Sprint(fleet), "--parallel", "8", "local:"+r.lxd.lxd.TinyAlias)
		}))
		r.lxd.run("lxd-benchmark", "delete", "--parallel", "24")

		loop = append(loop, took(func() {
			for _, name := range all {
				create(name)
			}
		}))
		destroyed = append(destroyed, took(func() {
			for _, name := range all {
				remove(name)
			}
		}))
	}
	ratio("24 LXC containers until ready / loop of lxc-create and lxc-start", ours, loop, 0.20)
	ratio("24 LXC containers until ready / lxd-benchmark launch --parallel 8", ours, parallel, 0.60)
	ratio("delete of 24 LXC containers / loop of lxc-stop -k and lxc-destroy", gone, destroyed, 0.25)
}

// list lists many running containers with their processes and addresses.
func (r *lxcRig) list() {
	const looks = 20
	var all []time.Duration
	ran := r.programs.ran.Load()
	for range looks {
		var found []containerbroker.Instance
		all = append(all, took(func() {
			var err error
			found, err = r.d.List(r.b.Context(), true)
			r.must(err)
		}))
		if len(found) != kept || slices.ContainsFunc(found, func(i containerbroker.Instance) bool { return i.PID <= 0 }) {
			r.b.Fatalf("%d containers are listed, or one without its process", len(found))
		}
	}
	ran = r.programs.ran.Load() - ran
	bound("listing of 100 LXC containers with their processes", milliseconds(median(all)), 25, "ms", fmt.Sprintf("median of %d: %s", looks, seconds(all)))
	bound("programs run for such a listing", float64(ran)/looks, 0, "programs", fmt.Sprintf("in %d listings", looks))
}

// deaths kills one init after the other and waits for the driver's event.
func (r *lxcRig) deaths() {
	const kills = 50
	events, err := r.d.Events(r.b.Context())
	r.must(err)
	await := func(name string, actions ...string) time.Time {
		r.b.Helper()
		for late := time.After(time.Minute); ; {
			select {
			case e, open := <-events:
				if !open {
					r.b.Fatal("the event stream ended")
				}
				if e.Instance == name && slices.Contains(actions, e.Action) {
					return time.Now()
				}
			case <-late:
				r.b.Fatalf("no event %v of %s", actions, name)
			}
		}
	}
	for range kept { // each that runs is reported
		e := <-events
		if e.Action != "started" {
			r.b.Fatalf("the event %+v", e)
		}
	}
	var seen, again []time.Duration
	for i := range kills {
		name := names("m", kept)[i]
		pid := r.pid(name)
		died := time.Now()
		r.must(syscall.Kill(pid, syscall.SIGKILL))
		seen = append(seen, await(name, "init-ended", "ended").Sub(died))
		r.must(r.d.SetPower(r.b.Context(), name, containerbroker.PowerStart, 0))
		again = append(again, time.Since(died))
		await(name, "started")
	}
	spread := func(all []time.Duration) string {
		return fmt.Sprintf("median %.0f ms, p90 %.0f ms, max %.0f ms", milliseconds(median(all)), milliseconds(percentile(all, 90)), milliseconds(slices.Max(all)))
	}
	bound("from an LXC container's death to the driver's event, p99 of 50", milliseconds(percentile(seen, 99)), 20, "ms", spread(seen)+", with 100 containers")
	bound("from an LXC container's death until it runs again, p99 of 50", milliseconds(percentile(again, 99)), 200, "ms", spread(again)+", with 100 containers")
}

func (r *lxcRig) pid(name string) (pid int) {
	r.b.Helper()
	harness.Wait(r.b, "the process of "+name, 10*time.Second, func() error {
		all, err := r.d.List(r.b.Context(), true)
		r.must(err)
		at := slices.IndexFunc(all, func(i containerbroker.Instance) bool { return i.Name == name })
		if at < 0 || all[at].PID <= 0 {
			return fmt.Errorf("it has none")
		}
		pid = int(all[at].PID)
		return nil
	})
	return pid
}
