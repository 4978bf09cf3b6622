package lxc

import (
	"context"
	"errors"
	"os"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// beginWithin is how long begin waits for the lock, which a look for leftovers
// may hold for a moment.
const beginWithin = 2 * time.Second

// begin makes the folder of an attempt and locks it. The lock tells a running
// attempt from one that was interrupted.
func (d *Driver) begin(ctx context.Context, making string) (*os.File, error) {
	for deadline := time.Now().Add(beginWithin); ; {
		if err := os.Mkdir(making, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		folder, free, err := tryFolder(making)
		if err != nil || free && folder != nil {
			return folder, err
		}
		if time.Now().After(deadline) {
			return nil, fault.New(fault.Transient, "another process is creating it")
		}
		if err := pause.For(ctx, lockEvery); err != nil {
			return nil, err
		}
	}
}

// equip gives a new instance the machine's interfaces and disks.
func (d *Driver) equip(c *config, n *note, dir string, m containerbroker.Machine) error {
	for _, nic := range m.NICs {
		d.putNIC(c, n, m, nic)
	}
	if len(m.NICs) == 0 {
		d.putDefault(c, n, m.Stamp.UID)
	}
	for _, disk := range m.Disks {
		if err := d.putDisk(c, n, dir, disk); err != nil {
			return err
		}
	}
	return nil
}

// clearRoots removes a root filesystem that an interrupted attempt of the same
// token left, unless an instance uses it.
func (d *Driver) clearRoots(token string) error {
	for _, privileged := range []bool{false, true} {
		root := d.rootOf(token, privileged)
		if _, err := os.Lstat(root); errors.Is(err, os.ErrNotExist) {
			continue
		}
		used, err := d.roots()
		if err != nil {
			return err
		}
		if names, is := used[root]; is {
			return fault.New(fault.Conflict, "instance %q has the same token", names[0])
		}
		if err := d.removeVolume(root); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the files of an attempt.
func (d *Driver) forget(token string) error {
	return errors.Join(d.clearRoots(token), os.RemoveAll(d.own("making", token)))
}
