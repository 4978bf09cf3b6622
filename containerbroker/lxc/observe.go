package lxc

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"hostler/containerbroker"
)

// observe adds what a running instance has plugged in. It differs from the files
// after the guest rebooted, because a monitor does not read them again.
func (d *Driver) observe(ctx context.Context, e entry, i *containerbroker.Instance) {
	now := i.Stored
	now.NICs, now.Disks = maps.Clone(now.NICs), maps.Clone(now.Disks)
	i.Running = &now
	d.observeLimits(ctx, e, &now.Properties)
	for name := range now.NICs {
		if nic, is := e.conf.findNIC(name); is && nic.pair != "" && !d.hasLink(nic.pair) {
			delete(now.NICs, name)
		}
	}
	dropped := e.noted().Dropped
	if len(now.Disks) == 0 && len(dropped) == 0 {
		return
	}
	init, err := d.initOf(ctx, e.name)
	if err != nil {
		return // it has just ended, as the next listing will show
	}
	for name, pair := range dropped {
		if d.cameBack(init.pid, name, pair) {
			now.NICs[name] = "an interface that was removed"
		}
	}
	if len(now.Disks) == 0 {
		return
	}
	mounted, err := d.mounted(ctx, e.name, init.pid)
	if err != nil {
		return
	}
	maps.DeleteFunc(now.Disks, func(name, _ string) bool { return !mounted[e.note.Disks[name].target()] })
}

// target returns the path of a disk in the guest.
func (g givenDisk) target() string {
	if g.Device != "" {
		return g.Device
	}
	return g.Path
}

// isBelow reports whether a disk is mounted below another one's folder.
func (g givenDisk) isBelow(outer givenDisk) bool {
	return strings.HasPrefix(g.target(), outer.target()+"/")
}

// byTarget returns the names of disks in an order in which each comes after those whose
// folders it is below.
func byTarget(disks map[string]givenDisk) []string {
	return slices.SortedFunc(maps.Keys(disks), func(a, b string) int { return strings.Compare(disks[a].target(), disks[b].target()) })
}

// mountPoints returns the mount points of a process's mounts.
func (d *Driver) mountPoints(_ context.Context, _ string, pid int) (map[string]bool, error) {
	return readMountPoints(d.process(pid, "mountinfo"))
}

// readMountPoints reads a table of mounts. The fifth column of mountinfo is the
// mount point, in which blanks are escaped.
func readMountPoints(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			found[unescape.Replace(fields[4])] = true
		}
	}
	return found, nil
}
