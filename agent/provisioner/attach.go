package provisioner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// surroundings are the networks and the storage that machines are given.
type surroundings struct {
	networks    map[string]network
	volumes     map[string]spec.StorageStatus
	filesystems map[string]spec.StorageStatus
}

type network struct {
	spec   spec.Network
	status spec.NetworkStatus
}

// surroundingsOf decodes the objects that machines refer to. One that is on
// its way out is as good as absent.
func surroundingsOf(objects []state.Object) (surroundings, error) {
	s := surroundings{networks: map[string]network{}, volumes: map[string]spec.StorageStatus{}, filesystems: map[string]spec.StorageStatus{}}
	for _, o := range objects {
		if o.Life != state.Alive {
			continue
		}
		var err error
		switch o.Kind {
		case spec.KindNetwork:
			var record spec.NetworkRecord
			var status spec.NetworkStatus
			err = decode(o, &record, &status)
			s.networks[o.Name] = network{record.Network, status}
		case spec.KindVolume:
			var status spec.StorageStatus
			err = decode(o, nil, &status)
			s.volumes[o.Name] = status
		case spec.KindFilesystem:
			var status spec.StorageStatus
			err = decode(o, nil, &status)
			s.filesystems[o.Name] = status
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// volumePrefix begins the names of the disks that are volumes.
const volumePrefix = "vol-"

// decode reads an object's halves; either target may be nil.
func decode(o state.Object, record, status any) error {
	if record != nil {
		if err := json.Unmarshal(o.Spec, record); err != nil {
			return fault.New(fault.NeedsOperator, "cannot read the record of %s/%s: %v", o.Kind, o.Name, err)
		}
	}
	if status != nil && len(o.Status) > 0 {
		if err := json.Unmarshal(o.Status, status); err != nil {
			return fault.New(fault.NeedsOperator, "cannot read the status of %s/%s: %v", o.Kind, o.Name, err)
		}
	}
	return nil
}

// attach fills in the machine's interfaces and disks, and says what they wait
// for: while anything is missing, the instance is neither made nor started nor
// changed, since what is missing would look like something to take away; but
// see takenAway.
func (s surroundings) attach(d *Desired) {
	for _, name := range slices.Sorted(maps.Keys(d.Record.Machine.Networks)) {
		nic := d.Record.Machine.Networks[name]
		n, declared := s.networks[nic.Network]
		guest, given := n.status.Guests[d.Name+"/"+name]
		if !declared || n.status.State != "ready" || !given || guest.Released != nil || guest.Machine != "" && guest.Machine != d.UID {
			what := spec.KindNetwork + "/" + nic.Network
			if n.status.Message != "" {
				what += " (" + n.status.Message + ")"
			}
			d.Waiting = append(d.Waiting, what)
			continue
		}
		is := n.spec
		if n.status.Applied != nil {
			is = *n.status.Applied
		}
		d.Machine.NICs = append(d.Machine.NICs, containerbroker.NIC{
			Name: name, Bridge: is.Bridge, MAC: guest.MAC, MTU: is.MTU, Addresses: guest.Addresses,
			// Without an address of ours the guest asks whoever is on the bridge.
			Static: !is.DHCP && len(guest.Addresses) > 0, Gateways: n.status.Gateways, Nameservers: n.status.Nameservers,
		})
		d.Machine.ExpectAddress = true
	}
	for _, a := range d.Record.Machine.Storage {
		disk := diskOf(a)
		kind, name, status := spec.KindFilesystem, a.Filesystem, s.filesystems[a.Filesystem]
		if a.Volume != "" {
			kind, name, status = spec.KindVolume, a.Volume, s.volumes[a.Volume]
			disk.Size = status.Size
		}
		disk.Source = status.Attachments[d.Name].Source
		if disk.Source == "" {
			d.Waiting = append(d.Waiting, fmt.Sprintf("%s/%s", kind, name))
			continue
		}
		d.Machine.Disks = append(d.Machine.Disks, disk)
	}
	slices.SortFunc(d.Machine.Disks, func(a, b containerbroker.Disk) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// diskOf is the disk that a machine is given, but for its source.
func diskOf(a spec.Attachment) containerbroker.Disk {
	if a.Volume != "" {
		return containerbroker.Disk{Name: volumePrefix + a.Volume, Device: "/dev/hostler-" + a.Volume, ReadOnly: a.ReadOnly}
	}
	return containerbroker.Disk{Name: "fs-" + a.Filesystem, Path: a.Path, ReadOnly: a.ReadOnly}
}

// takenAway are the changes that take from the instance the disks that its
// machine is not declared to have. They wait for nothing: what the machine
// waits for may wait for them, like a volume that it has in another one's stead.
func takenAway(d Desired, inst containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) []containerbroker.Change {
	m := d.Machine
	m.Disks = nil
	for _, a := range d.Record.Machine.Storage {
		disk := diskOf(a)
		disk.Source = "/declared"
		m.Disks = append(m.Disks, disk)
	}
	return slices.DeleteFunc(slices.Clone(diff(m, inst)), func(c containerbroker.Change) bool {
		_, is := containerbroker.DiskOf(c.Field)
		return !is || c.To != ""
	})
}

// letGo says whether the instance has no storage but what its record lists.
func letGo(d Desired, inst *containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) bool {
	if inst == nil || d.Status.Instance == nil || inst.Status == containerbroker.StatusBusy || inst.Status == containerbroker.StatusUnknown {
		return false
	}
	return len(takenAway(d, *inst, diff)) == 0
}
