package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// ruleMark is the line before each rule that hostler adds. The config itself tells
// hostler's rules from an administrator's, so both always change together.
const ruleMark = "# added by hostler, which also removes it"

// syncRules makes the config permit the block devices of the note. It removes no
// rule that hostler did not add.
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
	for at := slices.Index(c.lines, ruleMark); at >= 0; at = slices.Index(c.lines, ruleMark) {
		end := at + 1
		if end < len(c.lines) {
			if k, v, _ := setting(c.lines[end]); strings.HasSuffix(k, ".devices.allow") && strings.HasPrefix(v, "b ") {
				end++
			}
		}
		c.lines = slices.Delete(c.lines, at, end)
	}
	slices.Sort(want)
	for _, rule := range want {
		if !slices.Contains(c.all(key), rule) {
			c.lines = append(c.lines, ruleMark, key+" = "+rule)
		}
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
