package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// made declares a machine as an apply does, and puts its instance with the
// provisioner's stamp on LXD.
func (l *lossyHost) made(name string) {
	l.t.Helper()
	r := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	id := state.ID{Kind: spec.KindMachine, Name: name}
	results, err := l.store.Write(l.t.Context(), state.Atomic, state.Write{ID: id, UID: "uid-" + name, Spec: spec.Encode(r), Life: state.Alive})
	if err != nil {
		l.t.Fatal(err)
	}
	host, err := l.hostRecord(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	desired, err := provisioner.Decode([]state.Object{results[0].Object}, spec.LXD, provisioner.ConfigOf(host, spec.LXD))
	if err != nil {
		l.t.Fatal(err)
	}
	stamp := desired[0].Machine.Stamp
	stamp.Token = "token-" + name
	l.lxd.Add(containerbroker.Instance{Name: name, Status: containerbroker.StatusStopped, Stamp: &stamp})
}

// begin opens the store and compares the types with it, as the agent does at its
// start.
func (l *lossyHost) begin() {
	l.t.Helper()
	l.disk.well.Store(true)
	l.open()
	for t := range l.drivers {
		if err := l.learn(l.t.Context(), t); err != nil && !fault.Is(err, fault.NotReady) {
			l.t.Fatal(err)
		}
	}
}

// harvested returns the names of the instances that a pass would harvest.
func (l *lossyHost) harvested() (names []string) {
	l.t.Helper()
	record, err := l.hostRecord(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	objects, _, err := l.store.List(l.t.Context(), spec.KindMachine)
	if err != nil {
		l.t.Fatal(err)
	}
	config := provisioner.ConfigOf(record, spec.LXD)
	desired, err := provisioner.Decode(objects, spec.LXD, config)
	if err != nil {
		l.t.Fatal(err)
	}
	instances, err := l.lxd.List(l.t.Context(), false)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range provisioner.Plan(desired, provisioner.Observed{Complete: true, Instances: instances}, provisioner.Policy{
		Type: spec.LXD, Namespace: config.Namespace, Lineage: config.Lineage, Withheld: config.Withheld, Harvest: provisioner.HarvestAll, Diff: l.lxd.Diff,
	}) {
		if s.Action == provisioner.ActionHarvest && s.Waiting == "" {
			names = append(names, s.Machine)
		}
	}
	return names
}

func (l *lossyHost) recorded() (names []string) {
	l.t.Helper()
	objects, _, err := l.store.List(l.t.Context(), spec.KindMachine)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, o := range objects {
		names = append(names, o.Name)
	}
	return names
}

func (l *lossyHost) copyState(from, to string) {
	l.t.Helper()
	removeStore(l.t, filepath.Join(l.dir, to))
	if err := os.CopyFS(filepath.Join(l.dir, to), os.DirFS(filepath.Join(l.dir, from))); err != nil {
		l.t.Fatal(err)
	}
}

// An instance stamped at a revision that the store never had proves the store
// an older copy. Its machines are recorded again, none is harvested, and one
// event reports this.
func TestAnOlderCopyOfTheStoreIsFoundOut(t *testing.T) {
	l := newLossyHost(t)
	l.begin()
	l.made("kept")
	l.close()
	l.copyState("state", "copy")
	l.begin()
	l.made("later")
	unmarked := stamped("unmarked", "uid-unmarked", "hostler") // stamped by an earlier version
	l.lxd.Add(unmarked)
	l.close()

	l.copyState("copy", "state")
	l.disk.well.Store(true)
	l.open()
	if names := l.harvested(); len(names) > 0 {
		t.Errorf("%v would be harvested before the store is compared", names)
	}
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"found", "started again"} {
		if names := l.recorded(); !slices.Equal(names, []string{"kept", "later", "unmarked"}) {
			t.Errorf("%s: the records are %v", when, names)
		}
		if names := l.harvested(); len(names) > 0 {
			t.Errorf("%s: %v would be harvested", when, names)
		}
		if told := strings.Count(strings.Join(l.notices(), "\n"), "older copy"); told != 1 {
			t.Errorf("%s: told %d times: %q", when, told, l.notices())
		}
		events, err := l.store.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindHost, Name: spec.HostName}})
		if err != nil || len(events) != 1 || events[0].Reason != "OlderStore" || events[0].Level != state.LevelError {
			t.Errorf("%s: events %+v, %v", when, events, err)
		}
		l.close()
		l.begin()
	}
	defer l.close()
	// The store works as usual: an orphan of this store is harvested.
	l.made("stray")
	if _, err := l.store.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "stray"}, Revision: state.AnyRevision, Delete: true}); err != nil {
		t.Fatal(err)
	}
	if names := l.harvested(); !slices.Equal(names, []string{"stray"}) {
		t.Errorf("%v would be harvested, not the stray alone", names)
	}
}

// An instance whose record cannot be restored because its name is taken is
// never harvested.
func TestAnOlderCopyHarvestsNoTakenNames(t *testing.T) {
	l := newLossyHost(t)
	l.begin()
	l.made("kept")
	l.close()
	l.copyState("state", "copy")
	l.begin()
	l.made("later")
	l.close()
	l.copyState("copy", "state")
	l.open()
	record := spec.MachineRecord{Header: spec.Header{Declaration: "new"}, Machine: spec.Machine{Type: spec.KVM, Image: "debian/12"}}
	if _, err := l.store.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "later"}, Spec: spec.Encode(record), Life: state.Alive}); err != nil {
		t.Fatal(err)
	}
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if names := l.harvested(); len(names) > 0 {
			t.Errorf("%v would be harvested", names)
		}
		l.close()
		l.begin()
	}
	l.close()
}

// unwritable is a store that takes no writes.
type unwritable struct{ state.Backend }

func (unwritable) Write(context.Context, state.Mode, ...state.Write) ([]state.Result, error) {
	return nil, errors.New("disk full")
}

// A crash during the recovery does not change its result.
func TestAnOlderCopyIsRememberedUntilAllIsFound(t *testing.T) {
	l := newLossyHost(t)
	l.begin()
	l.made("kept")
	l.close()
	l.copyState("state", "copy")
	l.begin()
	l.made("later")
	l.close()
	l.copyState("copy", "state")
	l.open()
	l.recovery.Store = unwritable{l.store}
	if err := l.learn(t.Context(), spec.LXD); err == nil || !l.record().Old {
		t.Fatalf("not stopped in between: %v, %+v", err, l.record())
	}
	l.close()
	l.open()
	if names := l.harvested(); len(names) > 0 {
		t.Errorf("%v would be harvested", names)
	}
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	if names := l.recorded(); !slices.Equal(names, []string{"kept", "later"}) {
		t.Errorf("the records are %v", names)
	}
	l.close()
}

// A copy from before stamps bore marks is recognised by any mark.
func TestAnOlderCopyWithoutAnIDIsFoundOut(t *testing.T) {
	l := newLossyHost(t)
	l.begin()
	err := l.object().Update(t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) { r.Recovery.Lineage = spec.Lineage{} })
	if err != nil {
		t.Fatal(err)
	}
	l.close()
	l.copyState("state", "copy")
	l.begin()
	l.made("later")
	l.close()
	l.copyState("copy", "state")
	l.begin()
	defer l.close()
	if names := l.recorded(); !slices.Equal(names, []string{"later"}) {
		t.Errorf("the records are %v", names)
	}
}

// The instances of another store's agent are not ours in any harvest mode. Nor
// are the instances that it creates after our store was lost and recovered.
func TestInstancesOfAnotherStoreAreNotOurs(t *testing.T) {
	ours, theirs := newLossyHost(t), newLossyHost(t)
	theirs.lxd = ours.lxd
	ours.begin()
	theirs.begin()
	defer theirs.close()
	ours.made("ours")
	theirs.made("theirs")
	for range 2 {
		if names := ours.harvested(); len(names) > 0 {
			t.Errorf("%v would be harvested", names)
		}
		if names := theirs.harvested(); len(names) > 0 {
			t.Errorf("%v would be harvested", names)
		}
		ours.close()
		ours.begin()
	}
	ours.close()
	removeStore(t, filepath.Join(ours.dir, "state"))
	ours.begin()
	defer ours.close()
	if names := ours.recorded(); !slices.Equal(names, []string{"ours", "theirs"}) {
		t.Errorf("after the loss of all the records are %v", names)
	}
	theirs.made("more")
	if names := ours.harvested(); len(names) > 0 {
		t.Errorf("%v would be harvested", names)
	}
}
