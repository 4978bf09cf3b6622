package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
)

// deviceRule returns the permission of a block device.
func deviceRule(source string, readOnly bool) (string, error) {
	device, err := blockDevice(source)
	if err != nil {
		return "", err
	}
	rights := "rwm"
	if readOnly {
		rights = "rm"
	}
	return fmt.Sprintf("b %d:%d %s", unix.Major(device), unix.Minor(device), rights), nil
}

// isDiskRule reports whether a permission is one that deviceRule made, in a
// config that hostler renders. Such a config has no other for one block device.
func isDiskRule(rule string) bool {
	var major, minor int
	var rights string
	n, _ := fmt.Sscanf(rule, "b %d:%d %s", &major, &minor, &rights)
	return n == 3 && (rights == "rwm" || rights == "rm")
}

// syncRules makes the config permit the block devices of the note.
func (d *Driver) syncRules(c *config, n *note) error {
	key := d.cgroupKey("devices.allow")
	var want []string
	for _, g := range n.Disks {
		if g.Device == "" {
			continue
		}
		rule, err := deviceRule(g.Source, g.ReadOnly)
		if err != nil {
			return err
		}
		want = append(want, rule)
	}
	c.removeIf(func(k, v string) bool { return k == key && isDiskRule(v) && !slices.Contains(want, v) })
	slices.Sort(want)
	for _, rule := range want {
		c.add(key, rule)
	}
	return nil
}

// permit changes the permission of a block device in a running instance. On
// cgroup v1 the guest's cgroup can allow no more than the one above it, so the
// order matters. On v2 only the monitor can change its program.
func (d *Driver) permit(ctx context.Context, name, verb, rule string) error {
	if d.unified() {
		return d.tell(ctx, name, verb, rule)
	}
	outer, err := d.limitCgroup(ctx, name, "devices")
	if err != nil {
		return err
	}
	dirs := []string{outer, filepath.Join(outer, "guest")}
	if verb == "deny" {
		slices.Reverse(dirs)
	}
	for _, dir := range dirs {
		err := os.WriteFile(filepath.Join(dir, "devices."+verb), []byte(rule), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot %s the device %s: %w", verb, rule, err)
		}
	}
	return nil
}

// tell has the monitor of an instance change a file of its cgroup.
func (d *Driver) tell(ctx context.Context, name, verb, rule string) error {
	code, err := d.tool(ctx, d.opts.EndTimeout, paths.LXCCgroup, name, "devices."+verb, rule)
	if err == nil && code != 0 {
		err = fault.New(fault.Transient, "lxc-cgroup failed with exit code %d for the device %s", code, rule)
	}
	return err
}
