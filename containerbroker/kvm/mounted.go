package kvm

import (
	"time"

	"libvirt.org/go/libvirtxml"

	"hostler/internal/fault"
)

// filesystem is an element of the answer of guest-get-fsinfo: a mounted filesystem
// with the disks that hold it.
type filesystem struct {
	Mountpoint string `json:"mountpoint"`
	Disks      []struct {
		Serial string `json:"serial"`
	} `json:"disk"`
}

// mountsAnswer is the time in which the guest's agent must list the mounts.
const mountsAnswer = 10 * time.Second

// notMounted returns a transient error if the running guest has mounted a
// filesystem of the disk. A guest without an agent that can tell is asked to
// release the disk nonetheless; otherwise it would keep the disk until it stops.
func (u *updating) notMounted(disk *libvirtxml.DomainDisk) error {
	if !agentConnected(u.live) {
		return nil
	}
	var all []filesystem
	if err := askWithin(mountsAnswer, u.c, u.dom, "guest-get-fsinfo", nil, &all); err != nil {
		u.d.log.Debug("The guest's mounts cannot be read.", "instance", u.m.Name, "error", err)
		return u.c.ctx.Err()
	}
	for _, one := range all {
		for _, on := range one.Disks {
			if on.Serial != "" && on.Serial == disk.Serial {
				return fault.New(fault.Transient, "the guest has it mounted on %s; unmount it in the guest, or stop the machine", clean(one.Mountpoint, 256))
			}
		}
	}
	return nil
}
