//go:build integration

package bench

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/hosttest"
	"hostler/storage/blockdevice"
)

// An apply costs the daemon a bounded number of requests and the disk a bounded number
// of syncs for each machine. Times differ between hosts; these counts do not.
func TestApplyCostsFewRequestsAndSyncs(t *testing.T) {
	for _, daemon := range counted {
		t.Run(daemon.Name, func(t *testing.T) { countApply(t, daemon) })
	}
}

func countApply(t *testing.T, daemon lxdtest.Daemon) {
	r := newRig(t, daemon, true)
	r.apply(1) // the first machine of a type has the worker look at everything
	r.quiet()
	r.proxy.Forget()
	syncs, cpu := r.syncs(), r.cpu()
	full, needless, early := 0, 0, false
	r.proxy.Watch(func(method, path string) {
		if strings.Contains(path, "recursion=2") {
			if full++; !r.lacksAddress() {
				needless++
			}
		}
		early = early || method != http.MethodGet && full > 0
	})
	took := took(func() { r.apply(1 + fleet) })
	t.Logf("an apply of %d took %s, in which the agent used %s of CPU", fleet, took, r.cpu()-cpu)
	t.Logf("requests for an apply of %d: %s", fleet, r.requests())
	requests := r.proxy.Count("", "/") - r.proxy.Count("", "/1.0/events")
	syncs = r.syncs() - syncs
	t.Logf("%d requests, %d syncs", requests, syncs)
	if most := 4*fleet + 6; requests > most {
		t.Errorf("%d requests to the daemon, more than %d", requests, most)
	}
	if most := 2*fleet + 10; syncs > most {
		t.Errorf("%d syncs of the store, more than %d", syncs, most)
	}
	r.quiet()
	r.proxy.Watch(nil)
	// The addresses are read after the last start, and again only for a machine
	// whose DHCP client was slower: the request enters every container.
	if full > 3 || needless > 0 || early {
		t.Errorf("%d requests with recursion=2, %d of them while no machine lacked an address, before the last start: %t", full, needless, early)
	}
	r.proxy.Forget()
	r.apply(1 + fleet)
	if n := r.proxy.Count("", "/1.0/instances"); n != 1 {
		t.Errorf("an apply that changes nothing asked the daemon %d times for its instances: %s", n, r.requests())
	}

	r.idleCounts()

	r.proxy.Forget()
	r.delete()
	t.Logf("requests for a delete of %d: %s", 1+fleet, r.requests())
	if n, most := r.proxy.Count("", "/")-r.proxy.Count("", "/1.0/events"), 3*(1+fleet)+fleet; n > most {
		t.Errorf("%d requests for a delete, more than %d", n, most)
	}
}

// lacksAddress reports whether a machine has no address in its status. Any
// goroutine may call it.
func (r *rig) lacksAddress() bool {
	machines, err := r.agent.TryMachines()
	if err != nil {
		r.b.Error(err)
	}
	for _, m := range machines {
		if len(m.Addresses) == 0 {
			return true
		}
	}
	return false
}

// idleCounts leaves the agent alone. Events of block devices wake the agent too,
// e.g. of loop devices of another test, and so does a regular pass. So a time with
// such events does not count, and of the others only the quietest.
func (r *rig) idleCounts() {
	const seconds, most = 20, 60
	events, err := blockdevice.Changes(r.b.Context())
	if err != nil {
		r.b.Fatal(err)
	}
	r.quiet()
	least := math.MaxInt
	for try := 0; try < 4 && least > most; try++ {
		select {
		case <-events:
		default:
		}
		r.proxy.Forget()
		woken := r.wakeups()
		time.Sleep(seconds * time.Second)
		woken = r.wakeups() - woken
		r.b.Logf("%d wake-ups and these requests in %d idle seconds: %s", woken, seconds, r.requests())
		if n := r.proxy.Count("", "/") - r.proxy.Count("", "/1.0/events"); n > 1 {
			r.b.Errorf("%d requests in %d idle seconds", n, seconds)
		}
		select {
		case <-events:
			r.b.Log("block devices changed meanwhile, so this does not count")
		default:
			least = min(least, woken)
		}
	}
	switch {
	case least == math.MaxInt:
		r.b.Error("no wake-ups were counted, because block devices changed in every try")
	case least > most:
		r.b.Errorf("at least %d wake-ups in %d idle seconds, more than %d", least, seconds, most)
	}
}

// cpu returns the CPU time that the agent has used.
func (r *rig) cpu() time.Duration {
	r.b.Helper()
	// utime and stime, in hundredths of a second
	return time.Duration(statOf(r.b, r.agent.PID(), 14)+statOf(r.b, r.agent.PID(), 15)) * 10 * time.Millisecond
}

// statOf returns a number of /proc/PID/stat, counted from 1 as in proc(5).
func statOf(b testing.TB, pid, field int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ") // the program's name may hold spaces
	n, err := strconv.Atoi(strings.Fields(after)[field-3])
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// wakeups counts how often the agent's threads have been woken.
func (r *rig) wakeups() int { return wakeupsOf(r.b, r.agent.PID()) }

// syncs reads the count of syncs from the agent's metrics.
func (r *rig) syncs() int {
	r.b.Helper()
	n, found := r.metrics()["hostler_store_syncs_total"]
	if !found {
		r.b.Fatal("the metrics have no count of syncs")
	}
	return int(n)
}

// metrics reads the agent's metrics, by series.
func (r *rig) metrics() map[string]float64 {
	r.b.Helper()
	answer, err := hosttest.Client(r.agent.Socket()).Get("http://hostler/metrics")
	if err != nil {
		r.b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	all := map[string]float64{}
	for lines := bufio.NewScanner(io.LimitReader(answer.Body, 1<<20)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[series] = n
		}
	}
	return all
}
