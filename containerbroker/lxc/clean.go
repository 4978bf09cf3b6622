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
// of instances whose deletion had begun. Root filesystems that no config names,
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
	if more, err = d.dropAttempts(ctx); err != nil {
		return nil, more, err
	}
	removed, err := os.ReadDir(d.own("removed"))
	if err != nil {
		return nil, more, err
	}
	for _, e := range removed {
		if err := d.dismantle(d.own("removed", e.Name())); err != nil {
			return nil, more, err
		}
	}
	d.prune()
	if more {
		return nil, true, nil // a running creation may own a root filesystem
	}
	places, err = d.moveRoots()
	return places, false, err
}

// dropAttempts removes the files of interrupted creations. more is true if a
// creation is running.
func (d *Driver) dropAttempts(ctx context.Context) (more bool, err error) {
	attempts, err := os.ReadDir(d.own("making"))
	if err != nil {
		return false, err
	}
	for _, a := range attempts {
		if err := ctx.Err(); err != nil {
			return more, err
		}
		making := d.own("making", a.Name())
		folder, free, err := tryFolder(making)
		if err != nil {
			return more, err
		}
		if folder == nil || !free {
			more = more || !free
			continue
		}
		err = d.clearRoots(a.Name())
		if err == nil {
			err = os.RemoveAll(making)
		}
		if err := errors.Join(err, folder.Close()); err != nil {
			return more, err
		}
	}
	return more, nil
}

// moveRoots moves the root filesystems that no instance uses.
func (d *Driver) moveRoots() (places []string, err error) {
	entries, err := d.entries()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, e := range entries {
		used[e.root] = true
	}
	for _, kind := range []string{dirGuests, dirPrivileged} {
		roots, err := os.ReadDir(d.pool(kind))
		if err != nil {
			return places, err
		}
		for _, r := range roots {
			root := d.pool(kind, r.Name())
			if used[root] {
				continue
			}
			aside := d.pool("leftovers", r.Name()+"-"+strconv.FormatInt(time.Now().Unix(), 10))
			if err := os.MkdirAll(filepath.Dir(aside), 0o700); err != nil {
				return places, err
			}
			if err := renameNew(root, aside); err != nil {
				return places, err
			}
			places = append(places, aside)
		}
	}
	return places, nil
}
