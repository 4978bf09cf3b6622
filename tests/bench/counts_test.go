//go:build integration

package bench

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler/internal/hosttest"
)

// An apply costs LXD a bounded number of requests and the disk a bounded number
// of syncs for each machine. Times differ between hosts; these counts do not.
func TestApplyCostsFewRequestsAndSyncs(t *testing.T) {
	r := newRig(t, true)
	r.apply(1) // the first machine of a type has the worker look at everything
	r.quiet()
	r.proxy.Forget()
	syncs, began := r.syncs(), time.Now()
	r.apply(1 + fleet)
	// Relaxed changes are synced once a second.
	seconds := int(time.Since(began)/time.Second) + 1
	t.Logf("requests for an apply of %d: %s", fleet, r.requests())
	requests := r.proxy.Count("", "/") - r.proxy.Count("", "/1.0/events")
	syncs = r.syncs() - syncs
	t.Logf("%d requests, %d syncs", requests, syncs)
	if most := 7*fleet + 6; requests > most {
		t.Errorf("%d requests to LXD, more than %d", requests, most)
	}
	if most := 2*fleet + 10 + seconds; syncs > most {
		t.Errorf("%d syncs of the store, more than %d", syncs, most)
	}
	for request, n := range r.proxy.Counts() {
		// One look after the burst reads the addresses.
		if strings.Contains(request, "recursion=2") && n > 1 {
			t.Errorf("%d of %s, which enters every container", n, request)
		}
	}
	r.delete()
}

// syncs reads the count of syncs from the agent's metrics.
func (r *rig) syncs() int {
	r.b.Helper()
	answer, err := hosttest.Client(r.agent.Socket()).Get("http://hostler/metrics")
	if err != nil {
		r.b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	for lines := bufio.NewScanner(io.LimitReader(answer.Body, 1<<20)); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "hostler_store_syncs_total "); found {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				r.b.Fatal(err)
			}
			return int(n)
		}
	}
	r.b.Fatal("the metrics have no count of syncs")
	return 0
}
