//go:build integration

package bench

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// large names the environment variable with the number of containers of
// BenchmarkKept and BenchmarkSystemd, which `make bench FLEET=500` sets.
// 500 take longer than all other benchmarks together.
const large = "HOSTLER_BENCH_FLEET"

// sizeOf returns the number of containers for a row: the variable's, or usual.
func sizeOf(b *testing.B, usual int) int {
	b.Helper()
	text := os.Getenv(large)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < fleet {
		b.Fatalf("%s is %q, not a number of at least %d", large, text, fleet)
	}
	return n
}

// many makes n containers with lxd-benchmark, removes them, and makes them with
// hostler, through the proxy that counts the requests.
func (r *rig) many(n int) {
	r.delete()
	if n > 200 { // a /24 has too few addresses
		r.client("network", "set", r.lxd.Bridge, "ipv4.address", strings.TrimSuffix(r.lxd.Subnet, "/24")+"/22")
	}
	r.agent.Stop() // asks LXD nothing meanwhile
	theirs := took(func() {
		r.run("lxd-benchmark", "launch", "--count", fmt.Sprint(n), "--parallel", "8", "local:"+r.lxd.TinyAlias)
	})
	r.run("lxd-benchmark", "delete", "--parallel", "24")
	r.agent.Start()

	file := r.agent.File("bench", r.declaration(n))
	apply := func() { r.agent.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "20m") }
	r.quiet()
	r.proxy.Forget()
	syncs, full := r.syncs(), 0
	r.proxy.Watch(func(_, path string) {
		if strings.Contains(path, "recursion=2") {
			full++
		}
	})
	ours := took(apply)
	syncs = r.syncs() - syncs
	requests := r.proxy.Count("", "/") - r.proxy.Count("", "/1.0/events")
	listings := r.proxy.Count(http.MethodGet, "/1.0/instances?")
	detail := r.requests()
	r.proxy.Watch(nil)

	var none []time.Duration
	var lists []int
	r.quiet()
	for range 10 {
		r.proxy.Forget()
		none = append(none, took(apply))
		lists = append(lists, r.proxy.Count(http.MethodGet, "/1.0/instances"))
	}

	ratio(fmt.Sprintf("apply of %d until ready / lxd-benchmark launch --parallel 8", n), []time.Duration{ours}, []time.Duration{theirs}, 1.05)
	bound(fmt.Sprintf("requests to LXD for an apply of %d", n), float64(requests), float64(4*n+6), "requests", detail)
	// A listing a second would be more than a hundred.
	bound(fmt.Sprintf("listings of LXD for an apply of %d", n), float64(listings), float64(40+n/10), "requests", "the pause between two is ten times as long as one takes")
	bound(fmt.Sprintf("requests that enter every container for an apply of %d", n), float64(full), 1, "requests", "the read of the addresses after the last start")
	bound(fmt.Sprintf("syncs of the store for an apply of %d", n), float64(syncs), float64(2*n+10), "syncs", "counted by the agent")
	// The line through the targets of 24 and of 500 machines.
	target := 30 + float64(n-fleet)*(150-30)/(500-fleet)
	bound(fmt.Sprintf("apply of %d that changes nothing", n), milliseconds(median(none)), target, "ms", "median of 10: "+seconds(none)+"; "+r.listing())
	exactly(fmt.Sprintf("list requests to LXD for an apply of %d that changes nothing", n), lists, 1, "requests", fmt.Sprintf("each %v", lists))
}
