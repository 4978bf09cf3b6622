package api

import (
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// checkTypes refuses to change a machine's container type: the existing
// instance would continue to run beside the new instance, with the same name,
// addresses and storage. All other fields can change, some with a restart or a
// recreate.
func (w *declaredState) checkTypes(doc document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Machines)) {
		k, t := w.machines[name], doc.decl.Machines[name].Type
		if k == nil || k.before == nil || k.life != state.Alive || k.was.Machine.Type == t {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("machine/%s is of type %s and cannot become %s; delete it first (`hostler delete machine/%s`) or give the new machine another name",
			name, k.was.Machine.Type, t, name))
	}
	if len(wrong) > 0 {
		return fault.New(fault.Conflict, "cannot apply %s: %s", doc.name, fault.List(wrong, "; "))
	}
	return nil
}

// checkPlaces refuses to move a created filesystem: an empty filesystem would
// replace its data. A filesystem that differs from its declaration already, so
// that the user has to decide, may be declared as before; the storage worker
// leaves it in place.
func (w *declaredState) checkPlaces(doc document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Filesystems)) {
		g := w.dependencies[state.ID{Kind: spec.KindFilesystem, Name: name}]
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
			wrong = append(wrong, fmt.Sprintf("filesystem/%s is on %s and cannot move to %s; declare another filesystem and move the data, or delete it first (`hostler delete filesystem/%s`)",
				name, was, now, name))
		}
	}
	if len(wrong) > 0 {
		return fault.New(fault.Conflict, "cannot apply %s: %s", doc.name, fault.List(wrong, "; "))
	}
	return nil
}

// placeOf returns the place of a filesystem: its volume or provider.
func placeOf(f spec.Filesystem) string {
	if f.Volume != "" {
		return spec.KindVolume + "/" + f.Volume
	}
	return f.Provider
}
