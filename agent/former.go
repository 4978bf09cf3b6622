package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"hostler/agent/api"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// former makes of the machine that an instance would be the one that it was
// when its record went and it was left with its stamp: with the uid, and so
// the addresses, and all that it was given. That is only where everything that
// the stamp names is declared still; else what the instance has is its own.
func (a adopter) former(ctx context.Context, i containerbroker.Instance, found api.Adoptable) (api.Adoptable, error) {
	var stamped provisioner.StampedRecord
	if i.Stamp == nil || json.Unmarshal([]byte(i.Stamp.Record), &stamped) != nil {
		return found, nil
	}
	was := stamped.Machine
	if was.Type != found.Machine.Type || i.Stamp.UID == "" || stamped.Name != "" && stamped.Name != i.Name {
		return found, nil
	}
	objects, _, err := a.store.List(ctx, spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem)
	if err != nil {
		return found, fmt.Errorf("cannot read what is declared: %w", err)
	}
	if there, err := allThere(was, i, objects); err != nil || !there {
		return found, err
	}
	m := &found.Machine
	m.Networks, m.Storage, m.Publish = was.Networks, was.Storage, was.Publish
	m.CloudInit, m.SSHKeys, m.Retain = was.CloudInit, was.SSHKeys, was.Retain
	if was.Image != "" {
		m.Image = was.Image
	}
	if len(was.Storage) > 0 {
		m.Autostart = was.Autostart // the hypervisor is not told to
	}
	found.UID = i.Stamp.UID
	return found, nil
}

// allThere says whether a machine that an instance was can be declared again
// as it was.
func allThere(was spec.Machine, i containerbroker.Instance, objects []state.Object) (bool, error) {
	there := map[string]bool{}
	published := map[string]bool{}
	port := func(p spec.Publish) string { return fmt.Sprint(p.Protocol, p.HostPort) }
	for _, o := range objects {
		if o.Kind != spec.KindMachine {
			there[o.Kind+"/"+o.Name] = o.Life == state.Alive
			continue
		}
		if o.Name == i.Name || o.UID == i.Stamp.UID {
			return false, nil // declared anew, as another
		}
		var other spec.MachineRecord
		if err := json.Unmarshal(o.Spec, &other); err != nil {
			return false, fault.New(fault.NeedsOperator, "cannot read the record of machine/%s: %v", o.Name, err)
		}
		for _, p := range other.Machine.Publish {
			published[port(p)] = true
		}
	}
	for _, nic := range was.Networks {
		if !there[spec.KindNetwork+"/"+nic.Network] {
			return false, nil
		}
	}
	for _, s := range was.Storage {
		if !there[spec.KindVolume+"/"+s.Volume] && !there[spec.KindFilesystem+"/"+s.Filesystem] {
			return false, nil
		}
	}
	for _, p := range was.Publish {
		if published[port(p)] {
			return false, nil
		}
	}
	return true, nil
}
