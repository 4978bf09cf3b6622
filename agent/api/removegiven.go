package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// removeGiven sends a network, volume or filesystem away and takes it out of
// its declaration, as removeMachine does. Nothing may refer to it any more.
func (w *world) removeGiven(id state.ID) error {
	g := w.givens[id]
	if g == nil {
		return fault.New(fault.NotFound, "%s/%s is not there", id.Kind, clip(id.Name, 64))
	}
	if g.life != state.Alive {
		return nil
	}
	object := id.Kind + "/" + id.Name
	if err := w.filed(object); err != nil {
		return err
	}
	users, err := w.usersOf(id, nil)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		which := "that"
		if len(users) > 1 {
			which = "those"
		}
		return fault.New(fault.Conflict, "cannot remove %s: it is used by %s of the declaration %s; delete %s too, or apply the declaration without the use of it",
			object, strings.Join(users, ", "), g.declaration, which)
	}
	if err := w.strike(object); err != nil {
		return err
	}
	g.life = state.Dying
	return nil
}

// usersOf lists the objects (KIND/NAME, sorted) that stay and use a network,
// volume or filesystem; objects in going do not stay. The records are asked and
// not the documents, which may have been lost.
func (w *world) usersOf(id state.ID, going map[string]bool) ([]string, error) {
	if id.Kind == spec.KindMachine {
		return nil, nil
	}
	var users []string
	for name, k := range w.machines {
		if k.life == state.Alive && !going[spec.KindMachine+"/"+name] && uses(k.record.Machine, id) {
			users = append(users, spec.KindMachine+"/"+name)
		}
	}
	for other, g := range w.givens {
		if other.Kind != spec.KindFilesystem || g.life != state.Alive || going[other.Kind+"/"+other.Name] {
			continue
		}
		var r spec.FilesystemRecord
		if err := json.Unmarshal(g.now, &r); err != nil {
			return nil, fmt.Errorf("cannot read filesystem/%s: %w", other.Name, err)
		}
		if id.Kind == spec.KindVolume && r.Filesystem.Volume == id.Name {
			users = append(users, spec.KindFilesystem+"/"+other.Name)
		}
	}
	slices.Sort(users)
	return users, nil
}

// uses says whether a machine refers to a network, volume or filesystem.
func uses(m spec.Machine, id state.ID) bool {
	for _, nic := range m.Networks {
		if id.Kind == spec.KindNetwork && nic.Network == id.Name {
			return true
		}
	}
	return slices.ContainsFunc(m.Storage, func(a spec.Attachment) bool {
		return id.Kind == spec.KindVolume && a.Volume == id.Name || id.Kind == spec.KindFilesystem && a.Filesystem == id.Name
	})
}
