//go:build integration

package bench

import (
	"fmt"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
)

const (
	fleet  = 24 // containers of one round
	rounds = 3
)

// BenchmarkFleet makes and removes the same containers with hostler, with the
// daemon's own benchmark and with a loop of its client, round by round on one
// daemon. Their time ends when the daemon has started the last init. So does
// hostler's, but it is also measured until every machine is ready. Both work on
// eight instances at once.
func BenchmarkFleet(b *testing.B) {
	b.Run("LXD", func(b *testing.B) {
		makeFleets(b, lxdtest.LXD, "", targets{benchmark: 1.03, loop: 0.50, ready: 1.15, remove: 0.25})
	})
	b.Run("Incus", func(b *testing.B) {
		makeFleets(b, lxdtest.Incus, " on Incus", targets{benchmark: 1.10, loop: 0.55, ready: 1.25, remove: 0.25})
	})
}

// targets are the most that is good of each ratio.
type targets struct{ benchmark, loop, ready, remove float64 }

func makeFleets(b *testing.B, daemon lxdtest.Daemon, on string, most targets) {
	r := newRig(b, daemon, false, "concurrency: 8") // as the daemon's benchmark
	benchmark := daemon.Name + "-benchmark"
	starts := r.watch("instance-started")
	var running, ready, remove, parallel, loop, deletion []time.Duration
	for round := range rounds {
		began := time.Now()
		ready = append(ready, took(func() { r.apply(fleet) }))
		last := began
		for _, name := range names("m", fleet) {
			if at := starts.of(r, name, began); at.After(last) {
				last = at
			}
		}
		running = append(running, last.Sub(began))
		gone := took(r.delete)

		parallel = append(parallel, took(func() {
			r.run(benchmark, "launch", "--count", "24", "--parallel", "8", "local:"+r.lxd.TinyAlias)
		}))
		r.run(benchmark, "delete", "--parallel", "24")

		loop = append(loop, took(func() {
			for _, name := range names("l", fleet) {
				r.client("launch", r.lxd.TinyAlias, name)
			}
		}))
		if round > 0 { // The ratio of the delete is far below its target, so one round is enough.
			inTurns(8, names("l", fleet), func(name string) { r.client("delete", "-f", name) })
			continue
		}
		remove = append(remove, gone)
		deletion = append(deletion, took(func() { r.client(append([]string{"delete", "-f"}, names("l", fleet)...)...) }))
	}
	ratio(fmt.Sprintf("apply of 24%s until running / %s launch --parallel 8", on, benchmark), running, parallel, most.benchmark)
	ratio(fmt.Sprintf("apply of 24%s until running / loop of %s launch", on, daemon.Client), running, loop, most.loop)
	// A machine is ready when its init has run for a quarter of a second.
	ratio(fmt.Sprintf("apply of 24%s until ready / %s launch --parallel 8", on, benchmark), ready, parallel, most.ready)
	ratio(fmt.Sprintf("delete of 24%s / %s delete -f of 24", on, daemon.Client), remove, deletion, most.remove)
}
