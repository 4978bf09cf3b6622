package lxc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// freeLoops detaches the loop devices whose files are in a root filesystem. It
// must come before the removal of the files, after which the kernel no longer
// says where they were.
func (d *Driver) freeLoops(root string) error {
	var top unix.Stat_t
	if err := unix.Lstat(root, &top); err != nil {
		return nil // it is gone, or was never made
	}
	block := filepath.Join(d.opts.Sys, "block")
	devices, err := os.ReadDir(block)
	if err != nil {
		return err
	}
	for _, entry := range devices {
		name := entry.Name()
		if !strings.HasPrefix(name, "loop") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(block, name, "loop", "backing_file"))
		if err != nil {
			continue // it has no file, or was detached meanwhile
		}
		if err := freeLoop("/dev/"+name, strings.TrimSpace(string(text)), root, uint64(top.Dev)); err != nil {
			return fmt.Errorf("cannot detach %s: %w", name, err)
		}
	}
	return nil
}

// freeLoop detaches a loop device if its file is in the root filesystem. On
// btrfs each subvolume has a device number of its own. Elsewhere the path says
// where the file is.
func freeLoop(device, backing, root string, number uint64) error {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil // there is no such node, or the device is gone
	}
	defer func() { _ = f.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return nil // it has no file any more
	}
	var own unix.Stat_t
	inside := strings.HasPrefix(backing, root+"/") && unix.Lstat(strings.TrimSuffix(backing, " (deleted)"), &own) == nil && own.Ino == info.Inode
	var parent unix.Stat_t
	subvolume := unix.Lstat(filepath.Dir(root), &parent) == nil && uint64(parent.Dev) != number
	if !inside && (!subvolume || info.Device != number) {
		return nil
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}
