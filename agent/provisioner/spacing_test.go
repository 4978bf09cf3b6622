package provisioner

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/hosttest"
)

// slowLists is a hypervisor whose listings take time on the test's clock, and whose
// instances get no address.
type slowLists struct {
	containerbroker.Broker
	now             *time.Time
	plain, detailed time.Duration
	inDetail        int
}

func (s *slowLists) List(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	took := s.plain
	if detail {
		took = s.detailed
		s.inDetail++
	}
	*s.now = s.now.Add(took)
	all, err := s.Broker.List(ctx, detail)
	for i := range all {
		all[i].Addresses = nil
	}
	return all, err
}

// A machine without an address has the hypervisor enter all instances again and again.
// The pauses grow with what that costs.
func TestLooksForAddressesFollowTheirCost(t *testing.T) {
	for _, c := range []struct {
		detailed  time.Duration
		most, few int
	}{
		{time.Millisecond, 8 * 5, 15}, // an eighth of the time since the start, from one second on
		{9 * time.Second, 4, 2},
	} {
		store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		record := machine("web", provisioned)
		if _, err := store.Write(t.Context(), state.Atomic, state.Write{ID: record.id(), UID: record.UID, Life: state.Alive, Spec: spec.Encode(record.Record), Status: spec.Encode(record.Status)}); err != nil {
			t.Fatal(err)
		}
		fake, inst := brokertest.New(), instance("web")
		fake.Add(inst)
		now := t0
		slow := &slowLists{Broker: fake, now: &now, plain: time.Millisecond, detailed: c.detailed}
		w := New(reconcile.Common{Store: store, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)},
			Options{Type: spec.LXD, Broker: slow, Differ: fake, Defaults: Config{Namespace: ns, Concurrency: 1}})
		w.begun = now
		for now.Sub(t0) < 5*time.Minute {
			next, err := w.pass(t.Context())
			w.Tasks.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if next.IsZero() {
				t.Fatal("no look for the address is due")
			}
			if next.After(now) {
				now = next
			}
		}
		if slow.inDetail < c.few || slow.inDetail > c.most {
			t.Errorf("with listings of %s: %d in five minutes, want %d to %d", c.detailed, slow.inDetail, c.few, c.most)
		}
	}
}

// Passes whose results nobody waits for leave the hypervisor nine tenths of its time.
func TestPassesAfterOperationsFollowTheirCost(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0:                      gatherSettled,
		90 * time.Millisecond:  gatherSettled,
		400 * time.Millisecond: 4 * time.Second,
		time.Minute:            longestSettled,
	} {
		var l listingTimes
		l.took(took, false)
		l.took(time.Hour, true)
		if got := l.settled(); got != want {
			t.Errorf("after a listing of %s: %s, want %s", took, got, want)
		}
	}
}
