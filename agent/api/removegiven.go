package api

import (
	"hostler/agent/api/raw"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// removeGiven removes a network, volume or filesystem from the declared state
// and from its document, like removeMachine. It must have no users.
func (w *world) removeGiven(id state.ID) error {
	g := w.givens[id]
	if g == nil {
		return fault.New(fault.NotFound, "%s/%s is not there", id.Kind, raw.Clip(id.Name, 64))
	}
	if g.life != state.Alive {
		return nil
	}
	object := id.Kind + "/" + id.Name
	if err := w.filed(object); err != nil {
		return err
	}
	users, err := w.usersOf(object, nil)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		which := "that"
		if len(users) > 1 {
			which = "those"
		}
		return fault.New(fault.Conflict, "cannot remove %s: it is used by %s of the declaration %s; delete %s too, or apply the declaration without the use of it",
			object, fault.List(users, ", "), g.declaration, which)
	}
	if err := w.strike(object); err != nil {
		return err
	}
	g.life = state.Dying
	return nil
}
