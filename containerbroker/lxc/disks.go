package lxc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// putDisk notes a disk. The driver mounts the disks of an instance itself, when
// it starts and while it runs: liblxc would mount them as the guest's root, who
// cannot reach folders of the host. A block device also needs a node that the
// guest's root owns, and the permission of the devices cgroup.
func (d *Driver) putDisk(c *config, n *note, dir string, disk containerbroker.Disk) error {
	if n.Disks == nil {
		n.Disks = map[string]givenDisk{}
	}
	n.Disks[disk.Name] = givenOf(disk)
	if disk.Device == "" {
		return nil
	}
	if err := d.makeNode(dir, disk.Name, givenOf(disk), privileged(*c)); err != nil {
		return err
	}
	return d.syncRules(c, n)
}

// dropDisk removes a disk from the note and the config.
func (d *Driver) dropDisk(c *config, n *note, dir, name string) error {
	delete(n.Disks, name)
	if err := os.Remove(nodePath(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return d.syncRules(c, n)
}

func privileged(c config) bool { return len(c.all(keyMap)) == 0 }

func nodePath(dir, name string) string { return filepath.Join(dir, dirDevices, name) }

// makeNode makes the node of a block device in an instance's folder. It is not
// below /run, because that is mounted without devices.
func (d *Driver) makeNode(dir, name string, g givenDisk, asRoot bool) error {
	device, err := blockDevice(g.Source)
	if err != nil {
		return err
	}
	uid, gid := d.guestRoot(asRoot)
	mode := uint32(0o660)
	if g.ReadOnly {
		mode = 0o440
	}
	path := nodePath(dir, name)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var s unix.Stat_t
	if unix.Lstat(path, &s) == nil && s.Mode == unix.S_IFBLK|mode && s.Rdev == device && s.Uid == uint32(uid) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|mode, int(device)); err != nil {
		return fmt.Errorf("cannot make the node of %s: %w", name, err)
	}
	return errors.Join(os.Chown(path, uid, gid), unix.Chmod(path, mode))
}

func blockDevice(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, fault.New(fault.Transient, "cannot find its disk %s: %w", path, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fault.New(fault.Invalid, "its disk %s is no block device", path)
	}
	return s.Rdev, nil
}
