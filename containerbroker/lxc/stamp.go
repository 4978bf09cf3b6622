package lxc

import (
	"context"
	"fmt"
	"path/filepath"

	"hostler/containerbroker"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
)

// Stamp implements containerbroker.Stamper. It writes only hostler's own file,
// so the config of an adopted instance stays as it is. If the instance belonged
// to another machine, its devices become the instance's own.
func (d *Driver) Stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	return fault.Explain(d.stamp(ctx, name, seen, s), "cannot stamp instance %q", name)
}

func (d *Driver) stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	if err := s.Check(); err != nil {
		return err
	}
	unlock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := d.intact(name)
	if err != nil {
		return err
	}
	have := e.note.stamp()
	if err := containerbroker.MayStamp(have, seen, s); err != nil {
		return err
	}
	if have != nil && *have == s {
		return nil
	}
	n := &note{}
	if have != nil {
		n = e.note.clone()
	}
	if n.UID != s.UID {
		n.NICs, n.Disks, n.Dropped, n.Default = nil, nil, nil, ""
	}
	n.setStamp(name, s)
	return n.write(e.dir)
}

// Unstamp implements containerbroker.Stamper. An instance that does not exist
// counts as unstamped.
func (d *Driver) Unstamp(ctx context.Context, name string, seen containerbroker.Stamp) error {
	if err := d.unstamp(ctx, name, seen); err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot release instance %q: %w", name, err)
	}
	return nil
}

func (d *Driver) unstamp(ctx context.Context, name string, seen containerbroker.Stamp) error {
	unlock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := d.intact(name)
	if err != nil {
		return err
	}
	if err := containerbroker.MayUnstamp(e.note.stamp(), seen); err != nil {
		return err
	}
	return atomicfile.Remove(filepath.Join(e.dir, fileNote))
}
