//go:build integration && failpoint

package hostnet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/hostnet/nettest"
	"hostler/internal/failpoint"
	"hostler/internal/run"
)

var points = []failpoint.Point{
	failpoint.NetBridgeUnstamped, failpoint.NetAddressAdded, failpoint.NetEnslaved,
	failpoint.NetRouteAdded, failpoint.NetAddressDeleted, failpoint.NetReleased,
}

// A process dies at each point on the way to the bridge and back. The next
// process reaches the same result, and the peer stays reachable throughout.
func TestKilledAtEachPoint(t *testing.T) {
	if namespace := os.Getenv("HOSTNET_CHILD"); namespace != "" {
		child(t, namespace, os.Getenv("HOSTNET_BACK") != "")
		return
	}
	for _, point := range points {
		nths := []string{"#1"}
		if point == failpoint.NetAddressAdded || point == failpoint.NetRouteAdded || point == failpoint.NetAddressDeleted {
			nths = append(nths, "#3")
		}
		for _, nth := range nths {
			t.Run(string(point)+nth, func(t *testing.T) { killedAt(t, string(point)+"=kill"+nth) })
		}
	}
}

func killedAt(t *testing.T, plan string) {
	n, peer := nettest.New(t), nettest.New(t)
	uplink(n, peer)
	h := open(t, n)
	had, err := Carry(observe(t, h), "eth0")
	must(t, err)
	before := stable(n)
	session := newSession(t, n, peer)
	log := filepath.Join(t.TempDir(), "hits")
	start := func(back string) {
		self, err := os.Executable()
		must(t, err)
		_, err = run.Host{}.Run(t.Context(), run.Command{
			Path: self, Args: []string{"-test.run=^TestKilledAtEachPoint$", "-test.count=1"},
			Env: []string{"HOSTNET_CHILD=" + n.Path(), "HOSTNET_BACK=" + back, failpoint.PlanEnv + "=" + plan, failpoint.LogEnv + "=" + log},
		})
		if err != nil && !strings.Contains(err.Error(), "killed") {
			t.Fatal(err)
		}
	}
	wanted := func(back bool) Wanted {
		w := Wanted{Namespace: "hostler", NICSettings: map[string]NICSettings{"eth0": had}}
		if !back {
			w.Bridges = []Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}}}
		}
		return w
	}
	for _, back := range []bool{false, true} {
		p := newProbe(t, n, "192.0.2.1")
		p.answered(5)
		start(map[bool]string{true: "yes"}[back])
		p.answered(5)
		session.exchange()
		p.stop()
		settle(t, h, wanted(back))
	}
	if d := cmp.Diff(sorted(before), sorted(stable(n))); d != "" {
		t.Errorf("the host is not as it was: %s", d)
	}
	hits, err := os.ReadFile(log)
	if point, _, _ := strings.Cut(plan, "="); err != nil || !strings.Contains(string(hits), point+"\n") {
		t.Errorf("%s was never hit: %v", point, err)
	}
}

// child bridges the NIC, or gives it back, in a separate process. It reads the
// original settings from the NIC or from the bridge.
func child(t *testing.T, namespace string, back bool) {
	h, err := Open(Options{NetNS: namespace})
	must(t, err)
	defer h.Close()
	w := Wanted{Namespace: "hostler"}
	o := observe(t, h)
	from := "eth0"
	if back {
		from = "br-up"
	} else {
		w.Bridges = []Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}}}
	}
	had, err := Carry(o, from)
	must(t, err)
	w.NICSettings = map[string]NICSettings{"eth0": had}
	steps, _ := Plan(w, o)
	for _, s := range steps {
		must(t, h.Apply(t.Context(), s))
	}
}
