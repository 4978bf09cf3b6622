package storageprovisioner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
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
