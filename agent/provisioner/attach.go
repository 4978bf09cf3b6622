package provisioner

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// surroundings holds the networks and storage that machines refer to.
type surroundings struct {
	networks map[string]network
	storage  map[string]spec.StorageStatus // by KIND/NAME
}

type network struct {
	spec   spec.Network
	status spec.NetworkStatus
	// behind is true if the status is of an earlier generation.
	behind bool
}

// surroundings decodes the objects that machines refer to. It leaves out
// objects that are being removed.
func (k decoder) surroundings(objects []state.Object) (surroundings, error) {
	s := surroundings{map[string]network{}, map[string]spec.StorageStatus{}}
	for _, o := range objects {
		if o.Life != state.Alive {
			continue
		}
		var err error
		switch o.Kind {
		case spec.KindNetwork:
			s.networks[o.Name], err = k.networks.Decode(o, decodeNetwork)
		case spec.KindVolume, spec.KindFilesystem:
			s.storage[o.Kind+"/"+o.Name], err = k.storage.Decode(o, decodeStorage)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func decodeNetwork(o state.Object) (network, error) {
	var record spec.NetworkRecord
	var status spec.NetworkStatus
	err := o.Decode(&record, &status)
	return network{record.Network, status, status.ObservedGeneration < o.Generation}, err
}

func decodeStorage(o state.Object) (status spec.StorageStatus, err error) {
	err = o.Decode(nil, &status)
	return status, err
}

// attach fills in the machine's NICs and disks. It adds the networks and
// storage that are not ready to Waiting. While Waiting is not empty, the
// instance is neither created, started nor changed, because the plan would
// remove the NIC or disk that is not filled in. precede() lists the
// exceptions.
func (s surroundings) attach(d *Desired) {
	for _, name := range slices.Sorted(maps.Keys(d.Record.Machine.Networks)) {
		nic := d.Record.Machine.Networks[name]
		n, declared := s.networks[nic.Network]
		d.Unsettled = d.Unsettled || n.behind || !isAssigned(nic.Address, n.status.Guests[d.Name+"/"+name].Addresses)
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
			// A guest to which hostler gives no address uses DHCP on the
			// bridge.
			Static: !is.DHCP && len(guest.Addresses) > 0, Gateways: n.status.Gateways, Nameservers: n.status.Nameservers,
			AcceptRA: len(is.Interfaces) > 0 && !hasIPv6(guest.Addresses), Router: nic.Router,
		})
		d.Machine.ExpectAddress = true
	}
	disks, waiting := s.disks(d)
	d.Machine.Disks, d.Waiting = disks, append(d.Waiting, waiting...)
	d.HeldBack = len(d.Waiting) > 0 && !slices.ContainsFunc(d.Waiting, func(object string) bool { return !s.awaitsStop(d, object) })
}

// awaitsStop reports whether the storage worker has looked at the mode in which a machine
// declares a volume, and keeps the former one because the instance uses the volume. The
// volume's condition alone may be about something else, or of before the declaration.
func (s surroundings) awaitsStop(d *Desired, object string) bool {
	status := s.storage[object]
	offer := status.Attachments[d.Name]
	return offer.State == spec.StoragePending && d.Status.InUse(object) &&
		spec.ConditionOf(status.Conditions, spec.ConditionUpToDate).Reason == spec.ReasonHeldBack &&
		slices.ContainsFunc(d.Record.Machine.Storage, func(a spec.Attachment) bool {
			return a.Volume != "" && a.Object() == object && a.ReadOnly == offer.ReadOnly
		})
}

// isAssigned reports whether a NIC has its declared address, if it declares one.
func isAssigned(address string, has []string) bool {
	want, err := netip.ParsePrefix(address)
	return err != nil || slices.ContainsFunc(has, func(a string) bool {
		prefix, err := netip.ParsePrefix(a)
		return err == nil && prefix == want
	})
}

// disks returns the disks for the declared storage that is offered to the
// machine. waiting lists the declared storage that is not offered yet.
func (s surroundings) disks(d *Desired) (disks []containerbroker.Disk, waiting []string) {
	for _, a := range d.Record.Machine.Storage {
		disk, status := diskOf(a), s.storage[a.Object()]
		if a.Volume != "" {
			disk.Size = status.Size
		}
		offer := status.Attachments[d.Name]
		// The owners of a filesystem change with the machine, and a running instance would
		// keep the former. The offer of a volume may be that of its former mode, which the
		// storage worker changes while the machine is stopped.
		other := a.Filesystem != "" && offer.Privileged != d.Record.Machine.Privileged || a.Volume != "" && offer.ReadOnly != a.ReadOnly
		if disk.Source = offer.Source; disk.Source == "" || other {
			waiting = append(waiting, a.Object())
			continue
		}
		disks = append(disks, disk)
	}
	slices.SortFunc(disks, func(a, b containerbroker.Disk) int { return strings.Compare(a.Name, b.Name) })
	return disks, waiting
}

// hasIPv6 reports whether one of the addresses is an IPv6 address.
func hasIPv6(addresses []string) bool {
	return slices.ContainsFunc(addresses, func(a string) bool { return strings.Contains(a, ":") })
}

// diskOf returns the disk for an attachment. The caller sets the disk's source.
func diskOf(a spec.Attachment) containerbroker.Disk {
	disk := containerbroker.Disk{Name: diskName(a.Object()), Path: a.Path, ReadOnly: a.ReadOnly}
	if a.Volume != "" {
		disk.Path, disk.Device = "", "/dev/hostler-"+a.Volume
	}
	return disk
}
