//go:build integration && failpoint

package guard

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/hostnet"
	"hostler/internal/failpoint"
	"hostler/internal/run"
)

// The agent dies at each point of a guarded change, on the way to the bridge
// and back, and is not restarted. The watchdog restores the previous state
// within 10 s, unless the change was already kept.
func TestKilledAtEachPoint(t *testing.T) {
	there := []failpoint.Point{
		failpoint.NetArmed, failpoint.NetBridgeUnstamped, failpoint.NetAddressAdded, failpoint.NetEnslaved,
		failpoint.NetRouteAdded, failpoint.NetAddressDeleted, failpoint.NetNotProbed, failpoint.NetNotCommitted,
		failpoint.NetCommitted,
	}
	back := []failpoint.Point{failpoint.NetAddressAdded, failpoint.NetReleased, failpoint.NetAddressDeleted}
	for _, p := range failpoint.Uplinks {
		if !slices.Contains(slices.Concat(there, back, []failpoint.Point{failpoint.NetRestoring, failpoint.NetLastingWritten}), p) {
			t.Errorf("%s is not tried", p)
		}
	}
	for _, p := range there {
		t.Run(string(p), func(t *testing.T) { killedAt(t, string(p), "there") })
	}
	for _, p := range back {
		t.Run("back "+string(p), func(t *testing.T) { killedAt(t, string(p), "back") })
	}
	// The agent dies while undoing a bad change.
	t.Run(string(failpoint.NetRestoring), func(t *testing.T) { killedAt(t, string(failpoint.NetRestoring), "bad") })
}

func init() { agentProcess = agent }

func killedAt(t *testing.T, point, way string) {
	w := newFixture(t)
	if way == "back" {
		for _, s := range w.bridging() {
			must(t, w.host.Apply(t.Context(), s))
		}
		w.before = stable(w.n)
	}
	log := filepath.Join(t.TempDir(), "hits")
	self, err := os.Executable()
	must(t, err)
	began := time.Now()
	_, err = run.Host{}.Run(t.Context(), run.Command{
		Path: self, Timeout: 30 * time.Second,
		Env: []string{
			"GUARD_AGENT=" + w.dir, "GUARD_NETNS=" + w.n.Path(), "GUARD_WAY=" + way,
			failpoint.PlanEnv + "=" + point + "=kill#1", failpoint.LogEnv + "=" + log,
		},
	})
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the agent ended with %v", err)
	}
	if hits, _ := os.ReadFile(log); !strings.Contains(string(hits), point+"\n") {
		t.Errorf("%s was not hit", point)
	}
	if point == string(failpoint.NetArmed) {
		// Neither the watchdog nor the change had started: the next agent ends
		// it.
		must(t, w.guard.Recover(t.Context()))
		w.restored()
		return
	}
	if point == string(failpoint.NetCommitted) {
		w.bridged()
		eventually(t, "the watchdog's end", 5*time.Second, func() bool { return w.watchdog() == 0 })
		w.bridged()
		return
	}
	eventually(t, "the undoing", 20*time.Second, func() bool { _, armed := w.guard.Armed(); return !armed })
	t.Logf("%s %s: undone %v after the agent's start", way, point, time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	w.restored()
}

// agent is the process that makes a guarded change and dies.
func agent(dir, namespace, way string) error {
	h, err := hostnet.Open(hostnet.Options{NetNS: namespace})
	if err != nil {
		return err
	}
	g := New(Options{
		Dir: dir, Namespace: "hostler", Host: h,
		Start: func(ctx context.Context) error { return startWatchdog(ctx, dir, namespace) },
	})
	o, err := h.Observe(context.Background())
	if err != nil {
		return err
	}
	from, bridges := "eth0", []hostnet.Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}}}
	if way == "back" {
		from, bridges = "br-up", nil
	}
	had, err := hostnet.Carry(o, from)
	if err != nil {
		return err
	}
	steps, _ := hostnet.Plan(hostnet.Wanted{Namespace: "hostler", Bridges: bridges, NICSettings: map[string]hostnet.NICSettings{"eth0": had}}, o)
	if way == "bad" {
		steps = without(steps, hostnet.Enslave)
	}
	return g.Run(context.Background(), Change{Object: "network/lan", Key: "1", Steps: steps})
}
