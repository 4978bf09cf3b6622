package lxc

import (
	"context"
	"slices"
	"strings"
	"time"

	"hostler/containerbroker"
	"hostler/internal/oneline"
)

// raw is the data that Diff needs beyond containerbroker.Instance.
type raw struct{ entry entry }

// reported converts an entry. Status is that of the monitor.
func (d *Driver) reported(e entry, status containerbroker.Status) containerbroker.Instance {
	i := containerbroker.Instance{Name: e.name, Stamp: e.note.stamp(), Status: status, Arch: archOf(e.conf), Raw: raw{e}}
	stopped := status == containerbroker.StatusStopped
	switch wrong := e.conf.wrong(); {
	case e.damaged != nil:
		// The stamp of nobody: neither ours nor to be adopted.
		i.Stamp, i.Unreadable = &containerbroker.Stamp{Namespace: "?"}, true
		i.Status, i.Odd = containerbroker.StatusError, e.damaged.Error()
		return i
	case wrong != "" && stopped:
		i.Status = containerbroker.StatusError
		i.Odd = "liblxc refuses the line " + oneline.Clean(wrong, 128) + " of its config"
	case e.rootGone && stopped && e.note.stamp() != nil:
		i.Status = containerbroker.StatusHalfMade
	}
	if status == containerbroker.StatusFrozen {
		i.Standstill = "it was frozen outside hostler; `hostler start " + e.name + "` has it go on"
	}
	own := containerbroker.Settings{NICs: map[string]string{}, Addresses: map[string]string{}, Disks: map[string]string{}}
	var odd string
	own.CPUs, own.Memory, odd = d.readLimits(e.conf)
	if e.conf.sharesNetwork() {
		odd = "it has no network of its own: give it one first, e.g. by lxc.net.0.type = empty"
	}
	if i.Odd == "" {
		i.Odd = odd
	}
	own.Autostart = e.conf.get(keyAutostart) == "1"
	own.Privileged = len(e.conf.all(keyMap)) == 0
	own.Nesting = slices.Contains(e.conf.all(keyMount), nestingMounts[0])
	if n := e.note; n != nil {
		own.RootDisk, own.ImageID, own.Record = n.RootDisk, n.Image, n.Record
		own.UserData, own.NetworkConfig = n.Told.UserData, n.Told.NetworkConfig
		i.Created, i.ImageID = n.Created, n.Image
		i.RootUnlimited = n.RootDisk != 0 && e.inPool && !d.limitsRoots()
	}
	if e.note != nil {
		for name, disk := range e.note.Disks {
			own.Disks[name] = disk.disk(name).String()
		}
	}
	i.Stored, i.Properties = own, own.Properties
	i.CPUs, i.Memory = max(own.CPUs, 0), max(own.Memory, 0)
	for _, nic := range e.conf.interfaces() {
		if nic.hwaddr != "" {
			i.MACs = append(i.MACs, nic.hwaddr)
		}
		given, ours := e.given(nic.name)
		if ours {
			own.NICs[nic.name] = nicText(nic, given)
			own.Addresses[nic.name] = strings.Join(containerbroker.Hosts(given.Addresses), " ")
		}
		if ours && nic.link != "" && nic.pair != "" && !stopped {
			if i.Ports == nil {
				i.Ports = map[string]containerbroker.Port{}
			}
			i.Ports[nic.name] = containerbroker.Port{Device: nic.pair, Bridge: nic.link}
		}
	}
	slices.Sort(i.MACs)
	return i
}

// seen adds the time at which the init of a running instance started, and with
// detail its process id and addresses.
func (d *Driver) seen(ctx context.Context, i *containerbroker.Instance, detail bool) {
	init, err := d.initOf(ctx, i.Name)
	if err != nil || init.ticks == 0 {
		return // it has just ended, as the next listing will show
	}
	i.Started = time.Now().Add(-ageOf(init.ticks))
	if detail {
		i.PID, i.Addresses = int64(init.pid), d.addresses(init.pid)
	}
}
