package api

import (
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// checkTypes refuses to make one hypervisor's machine another's: the guest that
// is there would run on beside the new one, with its name, its addresses and
// its storage. Every other field can change, some with a restart or a recreate.
func (w *world) checkTypes(doc document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Machines)) {
		k, t := w.machines[name], doc.decl.Machines[name].Type
		if k == nil || k.before == nil || k.life != state.Alive || k.was.Machine.Type == t {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("machine/%s is of type %s and cannot become %s; delete it first (`hostler delete machine/%s`) or give the new one another name",
			name, k.was.Machine.Type, t, name))
	}
	if len(wrong) > 0 {
		return fault.New(fault.Conflict, "cannot apply %s: %s", doc.name, fault.List(wrong, "; "))
	}
	return nil
}

// checkPlaces refuses to have a filesystem that was made elsewhere: an empty
// one would take the place of its data. One that a person has to decide on
// already may be declared as it was; the storage worker leaves it where it is.
func (w *world) checkPlaces(doc document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Filesystems)) {
		g := w.givens[state.ID{Kind: spec.KindFilesystem, Name: name}]
		if g == nil || g.before == nil || g.life != state.Alive {
			continue
		}
		var record spec.FilesystemRecord
		var status spec.StorageStatus
		if err := decodeObject(*g.before, &record, &status); err != nil {
			return err
		}
		held := spec.Differs(status.Conditions)
		was, now := placeOf(record.Filesystem), placeOf(doc.decl.Filesystems[name])
		if was != now && status.Created && !held {
			wrong = append(wrong, fmt.Sprintf("filesystem/%s is on %s and cannot move to %s; declare another one and move the data, or delete it first (`hostler delete filesystem/%s`)",
				name, was, now, name))
		}
	}
	if len(wrong) > 0 {
		return fault.New(fault.Conflict, "cannot apply %s: %s", doc.name, fault.List(wrong, "; "))
	}
	return nil
}

// placeOf says what a filesystem is made on.
func placeOf(f spec.Filesystem) string {
	if f.Volume != "" {
		return spec.KindVolume + "/" + f.Volume
	}
	return f.Provider
}
