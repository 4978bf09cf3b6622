package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"hostler/containerbroker"
	"hostler/internal/atomicfile"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Create implements containerbroker.Broker. It makes the instance under another
// name and renames it when it is complete and durable, so no instance exists
// without its stamp. A rename does not replace an instance that came between.
func (d *Driver) Create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	err := fault.Explain(d.create(ctx, m, progress), "cannot create instance %q", m.Name)
	if err != nil && d.leftNothing(m) {
		return containerbroker.NotMade(err)
	}
	return err
}

// leftNothing reports whether a failed create attempt left neither an instance
// nor files.
func (d *Driver) leftNothing(m containerbroker.Machine) bool {
	if _, err := os.Lstat(d.own("making", m.Stamp.Token)); !errors.Is(err, os.ErrNotExist) {
		return false
	}
	e, err := d.readEntry(m.Name)
	return fault.Is(err, fault.NotFound) || err == nil && e.damaged == nil && !e.note.stamp().Is(m.Stamp)
}

func (d *Driver) create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	want, err := settingsOf(m)
	if err != nil {
		return err
	}
	if err := checkName("the token of a create attempt", m.Stamp.Token); err != nil {
		return err
	}
	if m.ImageID == "" {
		return fault.New(fault.Invalid, "no image is named")
	}
	unlock, err := d.lock(ctx, m.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.prepare(); err != nil {
		return err
	}
	if there, err := d.existing(m); there || err != nil {
		return err
	}
	progress.Report("create", "creating "+m.Name, -1)
	making := d.own("making", m.Stamp.Token)
	folder, err := d.begin(ctx, making)
	if err != nil {
		return err
	}
	root := d.rootOf(m.Stamp.Token, m.Privileged)
	ended := false
	defer func() {
		if _, err := os.Lstat(making); !ended && err == nil { // a panic
			_ = d.forget(m.Stamp.Token)
		}
		_ = folder.Close()
	}()
	if err = failpoint.Hit(failpoint.LXCMaking); err == nil {
		err = d.make(ctx, m, want, making, root)
	}
	if err == nil {
		err = d.rename(making, d.instance(m.Name))
	}
	ended = true
	if err == nil {
		return failpoint.Hit(failpoint.LXCRenamedNotRecorded)
	}
	if _, gone := os.Lstat(making); errors.Is(gone, os.ErrNotExist) {
		return err // the instance has its name, only the answer is missing
	}
	if err := d.forget(m.Stamp.Token); err != nil {
		return fault.New(fault.NeedsOperator, "its files in %s remain: %w", making, err)
	}
	if errors.Is(err, os.ErrExist) {
		if there, err := d.existing(m); there || err != nil {
			return err
		}
	}
	return err
}

// existing looks for an instance that has the machine's name. It returns true
// if the same create attempt made it, and a conflict for any other.
func (d *Driver) existing(m containerbroker.Machine) (bool, error) {
	if _, err := os.Lstat(d.instance(m.Name)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	e, err := d.readEntry(m.Name)
	owner := "it was not made by hostler"
	switch have := e.note.stamp(); {
	case fault.Is(err, fault.NotFound):
		owner = "its folder has no config"
	case err != nil:
		return false, err
	case e.damaged != nil:
		owner = e.damaged.Error()
	case have.Is(m.Stamp) && e.rootGone:
		return false, fault.New(fault.Transient, "its root filesystem is missing; it has to be deleted first")
	case have.Is(m.Stamp):
		return true, nil
	case e.note.owned(m.Stamp):
		owner = "an earlier attempt left it"
	case have != nil:
		owner = fmt.Sprintf("it belongs to namespace %q", oneline.Clean(have.Namespace, 64))
	}
	return false, fault.New(fault.Conflict, "an instance of that name exists; %s", owner)
}

// make makes all files of an instance.
func (d *Driver) make(ctx context.Context, m containerbroker.Machine, want containerbroker.Settings, making, root string) error {
	if err := d.clearRoots(m.Stamp.Token); err != nil {
		return err
	}
	image, err := d.imageFor(ctx, m)
	if err != nil {
		return err
	}
	if err := d.cloneVolume(ctx, image, root); err != nil {
		return fmt.Errorf("cannot copy its image: %w", err)
	}
	if err := failpoint.Hit(failpoint.LXCSnapshot); err != nil {
		return err
	}
	n := &note{Image: m.ImageID, Created: time.Now().UTC(), RootDisk: m.RootDisk, InstanceID: m.Guest.InstanceID}
	n.setStamp(m.Name, m.Stamp)
	if n.InstanceID == "" {
		n.InstanceID = m.Stamp.UID
	}
	n.Told = told{UserData: want.UserData, NetworkConfig: want.NetworkConfig}
	if err := d.limitVolume(root, m.RootDisk); err != nil {
		return fmt.Errorf("cannot limit its root disk: %w", err)
	}
	if err := d.furnish(root, m.Privileged, seedOf(m, n), m.Name); err != nil {
		return fmt.Errorf("cannot write into its root filesystem: %w", err)
	}
	if err := syncAll(root); err != nil { // before the rename that makes the instance real
		return err
	}
	if err := failpoint.Hit(failpoint.LXCSeeded); err != nil {
		return err
	}
	c, err := d.render(m, root)
	if err != nil {
		return err
	}
	if err := d.equip(&c, n, making, m); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(making, fileConfig), []byte(c.String()), 0o600); err != nil {
		return err
	}
	return n.write(making)
}
