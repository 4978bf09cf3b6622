package api

import (
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

// A machine's type cannot change: the new hypervisor's guest would run beside
// the existing guest of that name. Plan and apply report all such changes at
// once, whatever is allowed. The name of a removed machine is free.
func TestTheTypeOfAMachineStays(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one", "two", "three"))); err != nil {
		t.Fatal(err)
	}
	before := b.store.changes()
	other := strings.NewReplacer("one: {type: lxd", "one: {type: kvm", "two: {type: lxd", "two: {type: kvm").Replace(yaml("one", "two", "three"))
	req := request("web", other)
	words := []string{"web", "machine/one is of type lxd and cannot become kvm", "machine/two", "hostler delete machine/one", "another name"}
	_, err := c.Plan(t.Context(), req)
	faulttest.Want(t, err, fault.Conflict, words...)
	req.Allow = []string{"recreate"}
	_, err = c.Apply(t.Context(), req)
	faulttest.Want(t, err, fault.Conflict, words...)
	if strings.Contains(err.Error(), "three") {
		t.Errorf("three keeps its type: %v", err)
	}
	a := b.files(t, map[string]string{"base.yaml": strings.Replace(yaml("one"), "lxd", "kvm", 1)})
	faulttest.Want(t, a.Refused[folder+"base.yaml"], fault.Conflict)
	if b.store.changes() != before {
		t.Error("a refused change has written")
	}
	if _, rec := b.record(t, "one"); rec.Machine.Type != spec.LXD {
		t.Errorf("one is of type %s", rec.Machine.Type)
	}

	if _, err := c.Delete(t.Context(), []string{"machine/one", "machine/two"}); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Apply(t.Context(), req); err != nil || !b.Awaits() {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		b.end(t, name)
	}
	if err := b.Redeclare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); rec.Machine.Type != spec.KVM {
		t.Errorf("one is of type %s", rec.Machine.Type)
	}
}

// W10: a created filesystem stays on its volume or provider. Plan and apply
// refuse a move and write nothing, so its volume is not removed either. A
// filesystem that is not created yet, or already held back, may be declared on
// another place.
func TestThePlaceOfAFilesystemStays(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	const onVolume = "version: 1\nvolumes: {data: {provider: loop, size: 1GiB}}\nfilesystems: {www: {volume: data}, logs: {provider: rootfs, size: 1GiB}}\n"
	const moved = "version: 1\nfilesystems: {www: {provider: tmpfs, size: 1GiB}, logs: {provider: rootfs, size: 1GiB}}\n"
	if _, err := c.Apply(t.Context(), request("site", onVolume)); err != nil {
		t.Fatal(err)
	}
	tell := func(s spec.StorageStatus) {
		t.Helper()
		write := state.Write{ID: id(spec.KindFilesystem, "www"), Revision: state.AnyRevision, Status: spec.Encode(s)}
		if _, err := b.store.Write(t.Context(), state.Atomic, write); err != nil {
			t.Fatal(err)
		}
	}
	tell(spec.StorageStatus{Created: true})
	before := b.store.changes()
	words := []string{"site", "filesystem/www is on volume/data and cannot move to tmpfs", "declare another filesystem", "hostler delete filesystem/www"}
	_, err := c.Plan(t.Context(), request("site", moved))
	faulttest.Want(t, err, fault.Conflict, words...)
	_, err = c.Apply(t.Context(), request("site", moved))
	faulttest.Want(t, err, fault.Conflict, words...)
	if strings.Contains(err.Error(), "logs") {
		t.Errorf("logs stays where it is: %v", err)
	}
	if b.store.changes() != before {
		t.Error("a refused change has written")
	}
	tell(spec.StorageStatus{Created: true, Conditions: []spec.Condition{{Type: "UpToDate", Reason: "HeldBack"}}})
	if _, err := c.Plan(t.Context(), request("site", moved)); err != nil {
		t.Errorf("one that is held back: %v", err)
	}
	tell(spec.StorageStatus{})
	if _, err := c.Plan(t.Context(), request("site", moved)); err != nil {
		t.Errorf("one that was not made yet: %v", err)
	}
}
