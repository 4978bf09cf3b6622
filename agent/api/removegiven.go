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
	d := w.declarations[g.declaration]
	if d != nil {
		if err := fromFile(object, d.record.Source); err != nil {
			return err
		}
	}
	users, err := w.usersOf(id)
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
	if d != nil {
		d.record.Document = lacking(d.record.Document, id)
		if len(d.record.Document.Objects()) == 0 {
			d.gone = true
		}
	}
	g.life = state.Dying
	return nil
}

// lacking is the document without a network, volume or filesystem.
func lacking(doc spec.Declaration, id state.ID) spec.Declaration {
	switch id.Kind {
	case spec.KindNetwork:
		doc.Networks = without(doc.Networks, map[string]spec.Network{id.Name: {}})
	case spec.KindVolume:
		doc.Volumes = without(doc.Volumes, map[string]spec.Volume{id.Name: {}})
	case spec.KindFilesystem:
		doc.Filesystems = without(doc.Filesystems, map[string]spec.Filesystem{id.Name: {}})
	}
	return doc
}

// usersOf are the KIND/NAMEs, sorted, of what is to stay and refers to a
// network, volume or filesystem. The records are asked and not the documents,
// which may have been lost.
func (w *world) usersOf(id state.ID) ([]string, error) {
	var users []string
	for name, k := range w.machines {
		if k.life == state.Alive && uses(k.record.Machine, id) {
			users = append(users, spec.KindMachine+"/"+name)
		}
	}
	for other, g := range w.givens {
		if other.Kind != spec.KindFilesystem || g.life != state.Alive {
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
