package lxc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/pause"
	"hostler/internal/run"
)

// sweepEvery is the interval at which sweep looks for the end of processes.
const sweepEvery = 10 * time.Millisecond

// sweep removes what liblxc leaves of an instance that does not run: cgroups, in
// which it would refuse to start the instance again, and the host's ends of
// interfaces. The processes of a guest whose monitor was killed end some time
// after the monitor; sweep waits for them.
func (d *Driver) sweep(ctx context.Context, e entry) error {
	for deadline := time.Now().Add(d.opts.EndTimeout); ; {
		var left []string
		for _, key := range []string{"lxc.cgroup.dir.monitor", keyGroup} {
			if name := e.conf.get(key); safeName.MatchString(name) {
				left = append(left, d.sweepCgroups(name)...)
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fault.New(fault.Transient, "processes of its last run are still in %s", left[0])
		}
		if err := pause.For(ctx, sweepEvery); err != nil {
			return err
		}
	}
	for _, i := range e.conf.interfaces() {
		if _, given := e.given(i.name); given || e.note != nil && e.note.Default == i.name {
			d.removeLink(ctx, i.pair)
		}
	}
	return nil
}

// sweepCgroups removes the empty cgroups with a name, in all hierarchies. It
// returns those that stay, because they have processes.
func (d *Driver) sweepCgroups(name string) (left []string) {
	dirs := []string{filepath.Join(d.opts.Cgroup, name)}
	if !d.unified() {
		more, _ := filepath.Glob(filepath.Join(d.opts.Cgroup, "*", name))
		dirs = append(dirs, more...)
	}
	for _, dir := range dirs {
		removeCgroup(dir)
		if _, err := os.Lstat(dir); err == nil {
			left = append(left, dir)
		}
	}
	return left
}

func removeCgroup(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeCgroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// removeLink removes a network device of the host, and logs if it cannot.
func (d *Driver) removeLink(ctx context.Context, name string) {
	if err := d.deleteLink(ctx, name); err != nil {
		d.log.Warn("The host's end of an interface remains.", "device", name, "error", err)
	}
}

// deleteLink deletes a network device of the host if it is there.
func (d *Driver) deleteLink(ctx context.Context, name string) error {
	if !d.hasLink(name) {
		return nil
	}
	_, err := d.opts.Runner.Run(ctx, run.Command{Path: paths.IP, Args: []string{"link", "delete", name}})
	if err != nil && !d.hasLink(name) {
		err = nil // another process removed it
	}
	return err
}

func (d *Driver) hasLink(name string) bool {
	if !safeName.MatchString(name) {
		return false
	}
	_, err := os.Lstat(filepath.Join(d.opts.Sys, "class/net", name))
	return !errors.Is(err, os.ErrNotExist)
}

// removeLockFile removes the lock file that liblxc keeps for ever.
func (d *Driver) removeLockFile(name string) {
	_ = os.Remove(filepath.Join(d.opts.Run, "lxc/lock", d.opts.Path, "."+name))
}
