package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// MoveLeftovers implements containerbroker.Cleaner. It finishes what a crash
// interrupted: it removes the files of creations that no process continues and
// of instances and images whose deletion had begun. Root filesystems that no config names,
// of any owner, are moved to the folder leftovers of the pool.
func (d *Driver) MoveLeftovers(ctx context.Context) (places []string, more bool, err error) {
	if places, more, err = d.moveLeftovers(ctx); err != nil {
		err = fmt.Errorf("cannot tidy up %s: %w", d.own(), err)
	}
	return places, more, err
}

func (d *Driver) moveLeftovers(ctx context.Context) (places []string, more bool, err error) {
	if _, err := os.Lstat(d.own()); errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err := d.prepare(); err != nil {
		return nil, false, err
	}
	// What cannot be removed must not keep the rest.
	more, err = d.dropAttempts(ctx)
	err = errors.Join(err, d.dropImages(), d.dropRemoved())
	d.prune()
	if more {
		return nil, true, err // a running creation may own a root filesystem
	}
	places, moved := d.moveRoots()
	return places, false, errors.Join(err, moved)
}

// dropRemoved finishes the deletions of instances.
func (d *Driver) dropRemoved() error {
	removed, err := os.ReadDir(d.own("removed"))
	for _, e := range removed {
		err = errors.Join(err, d.dismantle(d.own("removed", e.Name())))
	}
	return err
}

// dropAttempts removes the files of interrupted creations. more is true if a
// creation is running.
func (d *Driver) dropAttempts(ctx context.Context) (more bool, err error) {
	attempts, err := os.ReadDir(d.own("making"))
	if err != nil {
		return false, err
	}
	var errs []error
	for _, a := range attempts {
		if err := ctx.Err(); err != nil {
			return more, err
		}
		making := d.own("making", a.Name())
		folder, free, err := tryFolder(making)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if folder == nil || !free {
			more = more || !free
			continue
		}
		err = d.clearRoots(a.Name())
		if err == nil {
			err = os.RemoveAll(making)
		}
		errs = append(errs, err, folder.Close())
	}
	return more, errors.Join(errs...)
}

// moveRoots moves the root filesystems that no instance uses. Creations and
// deletions may go on meanwhile. A root filesystem passes from a creation to an
// instance, and from there to the folder removed, so the users are read in this
// order, after the root filesystems.
func (d *Driver) moveRoots() (places []string, err error) {
	var roots []string
	for _, kind := range []string{dirGuests, dirPrivileged} {
		found, err := os.ReadDir(d.pool(kind))
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			roots = append(roots, d.pool(kind, r.Name()))
		}
	}
	used, err := d.usedRoots()
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if used[root] {
			continue
		}
		aside := d.pool("leftovers", filepath.Base(root)+"-"+strconv.FormatInt(time.Now().Unix(), 10))
		if err := os.MkdirAll(filepath.Dir(aside), 0o700); err != nil {
			return places, err
		}
		switch err := renameNew(root, aside); {
		case errors.Is(err, os.ErrNotExist): // a deletion has removed it
		case err != nil:
			return places, err
		default:
			places = append(places, aside)
		}
	}
	return places, nil
}

// usedRoots returns the root filesystems of running creations, of instances, and
// of instances whose deletion has begun.
func (d *Driver) usedRoots() (map[string]bool, error) {
	used := map[string]bool{}
	making, err := os.ReadDir(d.own("making"))
	if err != nil {
		return nil, err
	}
	for _, a := range making {
		used[d.rootOf(a.Name(), false)], used[d.rootOf(a.Name(), true)] = true, true
	}
	roots, err := d.roots()
	if err != nil {
		return nil, err
	}
	for root := range roots {
		used[root] = true
	}
	removed, err := os.ReadDir(d.own("removed"))
	if err != nil {
		return nil, err
	}
	for _, e := range removed {
		text, err := readFile(d.own("removed", e.Name(), fileConfig), maxConfig)
		switch {
		case errors.Is(err, os.ErrNotExist): // only its logs are left
		case err != nil:
			return nil, err
		default:
			for _, path := range layers(parseConfig(string(text))) {
				used[path] = true
			}
		}
	}
	return used, nil
}
