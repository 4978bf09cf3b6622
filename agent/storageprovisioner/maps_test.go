package storageprovisioner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage/idmap"
)

// A pass asks for the ids of a type's guests only if an unprivileged machine of the
// type declares a filesystem, because a daemon may list all its instances to answer.
func TestMapsAreReadOnlyForTypesThatNeedThem(t *testing.T) {
	data := spec.Attachment{Filesystem: "data", Path: "/srv"}
	for name, c := range map[string]struct {
		machine spec.Machine
		life    state.Life
		want    []spec.ContainerType
	}{
		"no storage":   {machine: spec.Machine{Type: spec.LXD}},
		"a volume":     {machine: spec.Machine{Type: spec.LXD, Storage: []spec.Attachment{{Volume: "raw"}}}},
		"privileged":   {machine: spec.Machine{Type: spec.LXD, Privileged: true, Storage: []spec.Attachment{data}}},
		"dying":        {machine: spec.Machine{Type: spec.LXD, Storage: []spec.Attachment{data}}, life: state.Dying},
		"a filesystem": {machine: spec.Machine{Type: spec.LXC, Storage: []spec.Attachment{data}}, want: []spec.ContainerType{spec.LXC}},
	} {
		r := newRig(t)
		calls := map[spec.ContainerType]int{}
		r.w.Sources.Map = func(_ context.Context, of spec.ContainerType) (idmap.Map, error) {
			calls[of]++
			return idmap.Map{}, errors.New("there are none")
		}
		r.filesystem("data", spec.Filesystem{Provider: "tmpfs"})
		r.volume("raw", spec.Volume{})
		if c.life == "" {
			c.life = state.Alive
		}
		r.put(state.ID{Kind: spec.KindMachine, Name: "web"}, spec.MachineRecord{Machine: c.machine}, c.life)
		for range 20 {
			r.pass()
		}
		if got := slices.Sorted(maps.Keys(calls)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, calls)
		}
	}
}

// Until the host is ready for a type, a filesystem waits for it and has no error. A
// map that is missing then is an error.
func TestFilesystemWaitsForTheTypeOfItsMachine(t *testing.T) {
	r := newRig(t)
	err := fault.New(fault.NotReady, "no row of root")
	r.w.Sources.Map = func(context.Context, spec.ContainerType) (idmap.Map, error) { return aMap, err }
	r.filesystem("data", spec.Filesystem{Provider: "tmpfs"})
	r.put(state.ID{Kind: spec.KindMachine, Name: "web"}, spec.MachineRecord{Machine: spec.Machine{
		Type: spec.LXC, Storage: []spec.Attachment{{Filesystem: "data", Path: "/srv"}},
	}}, state.Alive)
	attachment := func(state spec.StorageState, message string) {
		t.Helper()
		r.pass()
		if s := r.status(spec.KindFilesystem, "data"); s.State == spec.StorageError || s.Attachments["web"].State != state || s.Attachments["web"].Message != message {
			t.Errorf("%+v", s)
		}
	}
	attachment(spec.StoragePending, "waiting for the host to be ready for lxc machines")
	err = errors.New("no row of root")
	attachment(spec.StorageError, "no row of root")
	err = nil
	attachment(spec.StorageAttached, "")
}
