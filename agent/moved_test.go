package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// A machine whose instance was moved to another hypervisor is not made again,
// empty, until that instance is gone. Other machines are made, also while the
// other hypervisor does not answer.
func TestMovedMachineIsNotMadeAgain(t *testing.T) {
	h, lxd, kvm, _ := twoTypes(t)
	now := time.Now()
	h.now = func() time.Time { return now }
	store := h.sparing(h.store)
	begin := func(name, token string) error {
		now = now.Add(movedAge)
		return store.Begin(t.Context(), state.Intent{
			Token: token, Object: state.ID{Kind: spec.KindMachine, Name: name}, UID: "uid-" + name, Action: string(provisioner.ActionCreate), Owner: "lxd", Began: now,
		})
	}
	add := func(f *brokertest.Fake, name string, made spec.ContainerType) {
		record := spec.Encode(provisioner.StampedRecord{Name: name, Machine: spec.Machine{Type: made}})
		f.Add(containerbroker.Instance{Name: name, Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: "t", Record: string(record)}})
	}
	add(kvm, "web", spec.LXD) // moved
	add(kvm, "vm", spec.KVM)
	add(lxd, "db", spec.LXD)
	err := begin("web", "1")
	if !fault.Is(err, fault.NeedsOperator) || !strings.HasPrefix(err.Error(), "kvm/web is the instance of machine/web") || !strings.Contains(err.Error(), "`hostler adopt kvm/web`") {
		t.Errorf("web: %v", err)
	}
	if intents, err := h.store.Intents(t.Context()); err != nil || len(intents) != 0 {
		t.Errorf("%d intents, %v", len(intents), err)
	}
	for _, name := range []string{"db", "vm", "new"} {
		if err := begin(name, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	kvm.Fail(brokertest.List, "", -1, errors.New("it hangs"))
	if err := begin("other", "2"); err != nil {
		t.Errorf("while the other hypervisor does not answer: %v", err)
	}
	kvm.Heal()
	if err := kvm.Delete(t.Context(), "web", containerbroker.Stamp{Namespace: "hostler", UID: "uid-web", Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := begin("web", "3"); err != nil {
		t.Errorf("after the moved instance is gone: %v", err)
	}
	// Many creates share a list.
	calls := kvm.Calls(brokertest.List)
	for _, token := range []string{"4", "5", "6"} {
		now = now.Add(-movedAge) // begin() adds it
		if err := begin("web", token); err != nil {
			t.Error(err)
		}
	}
	if n := kvm.Calls(brokertest.List) - calls; n != 0 {
		t.Errorf("%d lists", n)
	}
}

// A machine that `hostler migrate` has moved is made again if the user permits
// it, although the migration keeps the original. Without the permission it is
// not, e.g. if its copy was deleted by hand.
func TestMigratedMachineIsMadeAgainIfPermitted(t *testing.T) {
	h, lxd, _, _ := twoTypes(t)
	now := time.Now()
	h.now = func() time.Time { return now }
	store := h.sparing(h.store)
	record := spec.Encode(provisioner.StampedRecord{Name: "web", Machine: spec.Machine{Type: spec.KVM}})
	lxd.Add(containerbroker.Instance{Name: "web", Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "uid-web", Token: "t", Record: string(record)}})
	id := state.ID{Kind: spec.KindMachine, Name: "web"}
	for _, c := range []struct {
		allow    string
		from     spec.ContainerType
		refusals fault.Kind
	}{{"recreate", spec.LXD, ""}, {"restart", spec.LXD, fault.NeedsOperator}, {"recreate", spec.Incus, fault.NeedsOperator}} {
		r := spec.MachineRecord{
			Machine:   spec.Machine{Type: spec.KVM},
			Migration: &spec.Migration{From: c.from, To: spec.KVM, Phase: spec.MigrationMoved},
		}
		r.Consent([]string{c.allow})
		w := state.Write{ID: id, UID: "uid-web", Life: state.Alive, Spec: spec.Encode(r)}
		if o, err := h.store.Get(t.Context(), id); err == nil {
			w.Revision = o.Revision
		}
		if _, err := h.store.Write(t.Context(), state.Atomic, w); err != nil {
			t.Fatal(err)
		}
		err := store.Begin(t.Context(), state.Intent{Token: c.allow + string(c.from), Object: id, UID: "uid-web", Action: string(provisioner.ActionCreate), Owner: string(spec.KVM), Began: now})
		if fault.KindOf(err) != c.refusals {
			t.Errorf("with --allow %s, from %s: %v", c.allow, c.from, err)
		}
	}
}

// The machine's status names the moved instance and the way to take it over.
// The provisioner makes no instance in the meantime.
func TestStatusOfAMovedMachine(t *testing.T) {
	h, lxd, kvm, _ := twoTypes(t)
	id := state.ID{Kind: spec.KindMachine, Name: "web"}
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	_, err := h.store.Write(t.Context(), state.Atomic, state.Write{
		ID: id, UID: "uid-web", Life: state.Alive, Spec: spec.Encode(record),
		Status: spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "web", Token: "t", Created: time.Now()}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	stamped := spec.Encode(provisioner.StampedRecord{Name: "web", Machine: record.Machine})
	kvm.Add(containerbroker.Instance{Name: "web", Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "uid-web", Token: "t", Record: string(stamped)}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		c := reconcile.Common{Store: h.sparing(h.store), Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		done <- provision(ctx, spec.LXD, c, lxd, lxd, h.config())
	}()
	var status spec.MachineStatus
	until(t, "the machine is an error", func() bool {
		o, err := h.store.Get(t.Context(), id)
		return err == nil && o.Decode(nil, &status) == nil && status.State == spec.MachineError
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(status.Message, "kvm/web is the instance of machine/web") || status.Attempts.NextRetry != nil {
		t.Errorf("status %+v", status)
	}
	if _, there := lxd.Get("web"); there {
		t.Error("it was made again")
	}
}
