package lxc

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// refresh prepares an instance for its start: the numbers of its block devices
// may have changed, and its files may have the ids of the other kind.
func (d *Driver) refresh(ctx context.Context, e *entry) error {
	if e.note == nil {
		return nil
	}
	c := e.conf.clone()
	for name, g := range e.note.Disks {
		if g.Device == "" {
			continue
		}
		if err := d.makeNode(e.dir, name, g, privileged(c)); err != nil {
			return err
		}
	}
	if err := d.syncRules(&c, e.note); err != nil {
		return err
	}
	if err := d.writeConfig(e, c); err != nil {
		return err
	}
	if len(e.note.Dropped) > 0 {
		e.note.Dropped = nil // the new monitor does not know them
		if err := e.note.write(e.dir); err != nil {
			return err
		}
	}
	return d.matchOwners(ctx, *e)
}

// matchOwners changes the owners of an instance's files after a change between
// unprivileged and privileged. The owner of the root folder changes last, so it
// tells whether an earlier run was complete.
func (d *Driver) matchOwners(ctx context.Context, e entry) error {
	if !e.inPool {
		return nil
	}
	var s unix.Stat_t
	if err := unix.Lstat(e.root, &s); err != nil {
		return err
	}
	if (s.Uid < d.opts.IDs.FirstUser) == privileged(e.conf) {
		return nil
	}
	if err := d.refuseMounts(e.root); err != nil {
		return err
	}
	return d.shift(ctx, e.root, privileged(e.conf))
}

// writeConfig replaces the config of an instance if it changed.
func (d *Driver) writeConfig(e *entry, c config) error {
	if slices.Equal(c.lines, e.conf.lines) {
		return nil
	}
	if err := atomicfile.Write(filepath.Join(e.dir, fileConfig), []byte(c.String()), 0o600); err != nil {
		return err
	}
	e.conf = c
	return failpoint.Hit(failpoint.LXCConfigWritten)
}

// plugAll mounts all disks of an instance that has just started.
func (d *Driver) plugAll(ctx context.Context, e entry) error {
	if e.note == nil || len(e.note.Disks) == 0 {
		return nil
	}
	pid, err := d.pidOf(ctx, e.name)
	if err != nil {
		return err
	}
	for _, name := range byTarget(e.note.Disks) {
		if err := d.plugDisk(ctx, e, pid, name, e.note.Disks[name]); err != nil {
			return err
		}
	}
	return nil
}

// runningPID returns the process id of an instance's init, or 0 if it does not
// run.
func (d *Driver) runningPID(ctx context.Context, name string) (int, error) {
	s, err := d.stateOf(ctx, name)
	switch {
	case errors.Is(err, errNoMonitor):
		return 0, nil
	case err != nil:
		return 0, err
	case s != stateRunning && s != stateThawed && s != stateFrozen:
		return 0, fault.New(fault.Transient, "its state is changing")
	}
	pid, err := d.pidOf(ctx, name)
	if errors.Is(err, errNoMonitor) {
		return 0, nil
	}
	return pid, err
}
