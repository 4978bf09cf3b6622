package lxc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// asked is how many monitors a listing asks at the same time.
const asked = 8

// List implements containerbroker.Broker. It runs no program: it reads the
// folders of the instances and the kernel's table of sockets once, and asks the
// monitors of the running instances. A monitor that does not answer makes only
// its own instance unknown.
func (d *Driver) List(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	all, err := d.list(ctx, detail)
	return all, fault.Explain(err, "cannot list LXC instances in %s", d.opts.Path)
}

func (d *Driver) list(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	if err := d.checkPool(); err != nil {
		return nil, err
	}
	entries, err := d.entries()
	if err != nil {
		return nil, err
	}
	up, err := d.monitors()
	if err != nil {
		return nil, err
	}
	all := make([]containerbroker.Instance, len(entries))
	errs := make([]error, len(entries))
	turns := make(chan struct{}, asked)
	var wait sync.WaitGroup
	for n, e := range entries {
		if !up[socketName(d.opts.Path, e.name)] {
			all[n] = d.reported(e, containerbroker.StatusStopped)
			continue
		}
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			var status containerbroker.Status
			if status, errs[n] = d.look(ctx, e); errs[n] != nil {
				return
			}
			all[n] = d.reported(e, status)
			if status == containerbroker.StatusRunning || status == containerbroker.StatusFrozen {
				d.observe(ctx, e, &all[n])
			}
			if status != containerbroker.StatusStopped && status != containerbroker.StatusUnknown {
				d.seen(ctx, &all[n], detail)
			}
		})
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

// entries reads the files of all instances, sorted by name.
func (d *Driver) entries() ([]entry, error) {
	found, err := os.ReadDir(d.opts.Path)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, f := range found {
		if hidden(f.Name()) || !d.isFolder(f) {
			continue
		}
		e, err := d.readEntry(f.Name())
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// isFolder reports whether an entry of the folder of instances is a folder or, as
// LXC sees it, a link to one.
func (d *Driver) isFolder(f os.DirEntry) bool {
	if f.Type() != os.ModeSymlink {
		return f.IsDir()
	}
	info, err := os.Stat(d.instance(f.Name()))
	return err == nil && info.IsDir()
}

// roots returns the root filesystems of all instances, of any owner, and their
// layers, with the instances' names. It fails if it cannot know them all, because
// the caller removes the others.
func (d *Driver) roots() (map[string][]string, error) {
	entries, err := d.entries()
	if err != nil {
		return nil, err
	}
	used := map[string][]string{}
	for _, e := range entries {
		if e.rootUnknown {
			return nil, fault.New(fault.NeedsOperator, "instance %q may use any root filesystem: make %s readable or remove it: %w",
				e.name, filepath.Join(e.dir, fileConfig), e.damaged)
		}
		for _, path := range layers(e.conf) {
			used[path] = append(used[path], e.name)
		}
	}
	return used, nil
}
