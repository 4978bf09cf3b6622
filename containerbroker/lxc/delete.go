package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Delete implements containerbroker.Broker. The instance ends with one rename;
// what remains of its files is then removed. Its logs are kept.
func (d *Driver) Delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	if err := d.delete(ctx, name, expect); err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot delete instance %q: %w", name, err)
	}
	return nil
}

func (d *Driver) delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	unlock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := d.lookup(name, expect)
	if err == nil && e.note.Token != expect.Token {
		err = fault.New(fault.Conflict, "it has another stamp")
	}
	if err != nil {
		return err
	}
	err = d.refuseCopies(e)
	if err == nil {
		err = d.refuseSnapshots(e)
	}
	if err == nil {
		err = d.refuseMounts(e.dir)
	}
	if err == nil && e.inPool {
		err = d.refuseMounts(e.root)
	}
	if err != nil {
		return err
	}
	if err := d.kill(ctx, name); err != nil {
		return fmt.Errorf("cannot stop it: %w", err)
	}
	if err := d.sweep(ctx, e); err != nil {
		return err
	}
	d.inits.set(name, initProcess{})
	d.removeLockFile(name)
	if err := d.prepare(); err != nil {
		return err
	}
	token := e.note.Token[:min(len(e.note.Token), 8)]
	if !safeName.MatchString(token) {
		token = "x"
	}
	gone := d.own("removed", fmt.Sprintf("%s-%d-%s", name, time.Now().UnixNano(), token))
	if err := renameNew(e.dir, gone); err != nil {
		return err
	}
	if err := syncDir(d.opts.Path); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.LXCRenamedAway); err != nil {
		return err
	}
	if err := d.dismantle(gone); err != nil {
		return err
	}
	d.prune()
	return nil
}

// dismantle removes the files of an instance from its folder in removed, except
// the logs. The config goes last, so that an interrupted run can be repeated.
// Without it, another deletion may remove the folder at any time (prune).
func (d *Driver) dismantle(gone string) error {
	text, err := readFile(filepath.Join(gone, fileConfig), maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.refuseMounts(gone); err != nil {
		return err
	}
	root := rootPath(parseConfig(string(text)))
	if !d.inPool(root) {
		root = ""
	}
	for _, r := range []string{root, filepath.Join(gone, "rootfs")} {
		if r == "" {
			continue
		}
		if err := d.freeLoops(r); err != nil {
			return err
		}
		if err := d.removeVolume(r); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(failpoint.LXCSubvolumeLeft); err != nil {
		return err
	}
	for _, name := range []string{dirDevices, fileNote, fileConfig} {
		if err := os.RemoveAll(filepath.Join(gone, name)); err != nil {
			return err
		}
	}
	return nil // a config that comes back with a power cut has the run repeated
}
