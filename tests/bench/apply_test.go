//go:build integration

package bench

import (
	"testing"
	"time"
)

const (
	fleet  = 24 // containers of one round
	rounds = 3
)

// BenchmarkFleet makes and removes the same containers with hostler, with
// lxd-benchmark and with a loop of lxc, round by round on one LXD. Hostler's
// time ends when every machine is ready, theirs when LXD has started the last
// init.
func BenchmarkFleet(b *testing.B) {
	r := newRig(b, false)
	var apply, remove, parallel, loop, lxcDelete []time.Duration
	for range rounds {
		apply = append(apply, took(func() { r.apply(fleet) }))
		remove = append(remove, took(r.delete))

		parallel = append(parallel, took(func() {
			r.run("lxd-benchmark", "launch", "--count", "24", "--parallel", "8", "local:"+r.lxd.TinyAlias)
		}))
		r.lxc(append([]string{"delete", "-f"}, r.lxd.Names()...)...)

		loop = append(loop, took(func() {
			for _, name := range names("l", fleet) {
				r.lxc("launch", r.lxd.TinyAlias, name)
			}
		}))
		lxcDelete = append(lxcDelete, took(func() { r.lxc(append([]string{"delete", "-f"}, names("l", fleet)...)...) }))
	}
	ratio("apply of 24 until ready / lxd-benchmark launch --parallel 8", apply, parallel, 1.03)
	ratio("apply of 24 until ready / loop of lxc launch", apply, loop, 0.50)
	ratio("delete of 24 / lxc delete -f of 24", remove, lxcDelete, 0.25)
}
