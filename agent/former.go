package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hostler/agent/api"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// former restores the record that an orphaned instance had before its removal,
// keeping the uid. Instances with networks, storage or published ports are
// excluded: others may have these by now, and a declaration names only its own
// objects.
func (a adopter) former(ctx context.Context, i containerbroker.Instance, found api.Adoptable) (api.Adoptable, error) {
	var stamped provisioner.StampedRecord
	if i.Stamp == nil || json.Unmarshal([]byte(i.Stamp.Record), &stamped) != nil {
		return found, nil
	}
	was := stamped.Machine
	switch {
	case was.Type != found.Machine.Type, i.Stamp.UID == "", stamped.Name != "" && stamped.Name != i.Name:
		return found, nil
	case len(was.Networks)+len(was.Storage)+len(was.Publish) > 0:
		return found, nil
	}
	objects, _, err := a.store.List(ctx, spec.KindMachine)
	if err != nil {
		return found, fmt.Errorf("cannot read the declarations: %w", err)
	}
	if slices.ContainsFunc(objects, func(o state.Object) bool { return o.Name == i.Name || o.UID == i.Stamp.UID }) {
		return found, nil // declared again as another machine
	}
	m := &found.Machine
	m.CloudInit, m.SSHKeys, m.Retain = was.CloudInit, was.SSHKeys, was.Retain
	if was.Image != "" {
		m.Image = was.Image
	}
	found.UID = i.Stamp.UID
	return found, nil
}
