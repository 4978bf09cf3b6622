package provisioner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// surroundings holds the networks and storage that machines refer to.
type surroundings struct {
	networks    map[string]network
	volumes     map[string]spec.StorageStatus
	filesystems map[string]spec.StorageStatus
}

type network struct {
	spec   spec.Network
	status spec.NetworkStatus
}

// surroundingsOf decodes the objects that machines refer to. It leaves out
// objects that are being removed.
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

// volumePrefix begins the name of a disk that is a volume, e.g. vol-data.
const volumePrefix = "vol-"

// decode reads an object's spec and status; either target may be nil.
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

// attach fills in the machine's NICs and disks and lists in Waiting the
// networks and storage that are not ready. While Waiting is not empty, the
// instance is neither created, started nor changed, because a missing NIC or
// disk would look like a device to remove. takenAway gives the exceptions.
func (s surroundings) attach(d *Desired) {
	for _, name := range slices.Sorted(maps.Keys(d.Record.Machine.Networks)) {
		nic := d.Record.Machine.Networks[name]
		n, declared := s.networks[nic.Network]
		guest, assigned := n.status.Guests[d.Name+"/"+name]
		if !declared || n.status.State != "ready" || !assigned || guest.Released != nil || guest.Machine != "" && guest.Machine != d.UID {
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
			// A guest without an address of ours uses DHCP on the bridge.
			Static: !is.DHCP && len(guest.Addresses) > 0, Gateways: n.status.Gateways, Nameservers: n.status.Nameservers,
			AcceptRA: len(is.Interfaces) > 0 && !hasIPv6(guest.Addresses), Router: nic.Router,
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

// hasIPv6 reports whether an address is of IPv6.
func hasIPv6(addresses []string) bool {
	return slices.ContainsFunc(addresses, func(a string) bool { return strings.Contains(a, ":") })
}

// diskOf returns the disk for an attachment, without its source.
func diskOf(a spec.Attachment) containerbroker.Disk {
	if a.Volume != "" {
		return containerbroker.Disk{Name: volumePrefix + a.Volume, Device: "/dev/hostler-" + a.Volume, ReadOnly: a.ReadOnly}
	}
	return containerbroker.Disk{Name: "fs-" + a.Filesystem, Path: a.Path, ReadOnly: a.ReadOnly}
}

// takenAway returns the changes that remove from the instance the disks that
// its machine no longer declares. These changes do not wait for missing
// storage, since that storage may wait for them: e.g. the declared volume
// becomes free only after the undeclared volume was detached.
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

// letGo says whether the instance has no storage beyond that in its record.
func letGo(d Desired, inst *containerbroker.Instance, diff func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change) bool {
	if inst == nil || d.Status.Instance == nil || inst.Status == containerbroker.StatusBusy || inst.Status == containerbroker.StatusUnknown {
		return false
	}
	return len(takenAway(d, *inst, diff)) == 0
}
