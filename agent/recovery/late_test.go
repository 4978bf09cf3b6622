package recovery

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// lateHost is a host without libvirt whose LXD starts after the agent.
type lateHost struct {
	*Recovery
	lxd *brokertest.Fake
	up  bool
}

func newLateHost(t *testing.T, report state.OpenReport) *lateHost {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	h, tokens := &lateHost{lxd: brokertest.New()}, 0
	h.Recovery = New(reconcile.Common{Store: store, Logger: slog.New(slog.DiscardHandler), Now: time.Now}, Options{
		Types: []spec.ContainerType{spec.KVM, spec.LXD},
		Broker: func(c spec.ContainerType) (containerbroker.Broker, error) {
			if c == spec.KVM || !h.up {
				return nil, fault.New(fault.NotReady, "%s is not set up on this host yet", c)
			}
			return h.lxd, nil
		},
		Storage:   func(context.Context) (storageprovisioner.Observed, error) { return storageprovisioner.Observed{}, nil },
		Namespace: func() string { return "hostler" },
		NewToken:  func() string { tokens++; return "token-" + strconv.Itoa(tokens) },
		Noted:     func(context.Context) error { return nil },
	})
	if err := h.Start(t.Context(), report, "", ""); err != nil {
		t.Fatal(err)
	}
	return h
}

// scan scans a type and returns what storage waits for then.
func (h *lateHost) scan(t *testing.T, c spec.ContainerType, want fault.Kind) string {
	t.Helper()
	if err := h.Scan(t.Context(), c); want != "" && !fault.Is(err, want) || want == "" && err != nil {
		t.Fatalf("the scan of %s: %v", c, err)
	}
	return h.withheld(t)
}

// withheld returns what storage waits for.
func (h *lateHost) withheld(t *testing.T) string {
	t.Helper()
	record, err := h.record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return record.Withheld("")
}

// After a loss, storage waits for the scan of a hypervisor that starts after the
// agent: from the first look at it, whether it answers or not.
func TestStorageWaitsForALateHypervisor(t *testing.T) {
	const lxd = "lxd to be compared with the records"
	for name, look := range map[string]func(h *lateHost){
		"the storage worker looks": func(h *lateHost) {
			if err := h.Await(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"the scan fails": func(h *lateHost) { h.scan(t, spec.LXD, fault.Transient) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newLateHost(t, state.OpenReport{Rebuilt: true})
			h.lxd.Fail(brokertest.List, "", 1, fault.New(fault.Transient, "LXD does not answer"))
			h.lxd.Add(stamped("web", "uid-web", "hostler"))
			h.scan(t, spec.KVM, fault.NotReady)
			h.scan(t, spec.LXD, fault.NotReady)
			if err := h.Await(t.Context()); err != nil || h.withheld(t) != "" {
				t.Fatalf("a host without hypervisors waits for %q, %v", h.withheld(t), err)
			}
			h.up = true
			if look(h); h.withheld(t) != lxd {
				t.Errorf("storage waits for %q", h.withheld(t))
			}
			if name == "the storage worker looks" {
				h.scan(t, spec.LXD, fault.Transient)
			}
			if got := h.scan(t, spec.LXD, ""); got != "" {
				t.Errorf("storage waits for %q after the scan", got)
			}
			if _, err := h.Store.Get(t.Context(), state.ID{Kind: spec.KindMachine, Name: "web"}); err != nil {
				t.Error(err)
			}
			if err := h.Await(t.Context()); err != nil || h.withheld(t) != "" {
				t.Errorf("after the recovery: %q, %v", h.withheld(t), err)
			}
		})
	}
}

// A hypervisor that is set up on a host whose store was never lost holds up no
// storage.
func TestANewHypervisorHoldsUpNoStorage(t *testing.T) {
	h := newLateHost(t, state.OpenReport{})
	h.scan(t, spec.LXD, fault.NotReady)
	h.up = true
	h.lxd.Fail(brokertest.List, "", 1, fault.New(fault.Transient, "LXD does not answer"))
	if err := h.Await(t.Context()); err != nil || h.withheld(t) != "" {
		t.Errorf("%q, %v", h.withheld(t), err)
	}
	if got := h.scan(t, spec.LXD, fault.Transient); got != "" {
		t.Errorf("storage waits for %q", got)
	}
}

// After a start of the agent, storage waits until each hypervisor was asked
// once, since its instances may prove the store to be an older copy. A
// hypervisor that does not answer, or is there no more, holds up no storage.
func TestStorageWaitsForTheFirstAnswer(t *testing.T) {
	const lxd = "lxd to be compared with the records"
	for name, c := range map[string]struct {
		before func(h *lateHost)
		want   fault.Kind
	}{
		"it answers": {func(*lateHost) {}, ""},
		"it is silent": {func(h *lateHost) {
			h.lxd.Fail(brokertest.List, "", 1, fault.New(fault.Transient, "LXD does not answer"))
		}, fault.Transient},
		"it is removed": {func(h *lateHost) { h.up = false }, fault.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			h := newLateHost(t, state.OpenReport{})
			h.up = true
			h.scan(t, spec.LXD, "")
			for range 2 {
				if err := h.Start(t.Context(), state.OpenReport{}, "", ""); err != nil {
					t.Fatal(err)
				}
				if got := h.withheld(t); got != lxd {
					t.Errorf("after the start storage waits for %q", got)
				}
				c.before(h)
				if got := h.scan(t, spec.LXD, c.want); got != "" {
					t.Errorf("after the scan storage waits for %q", got)
				}
			}
		})
	}
}
