package kvm

import (
	"context"
	"fmt"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Delete implements containerbroker.Broker. The definition goes last: until
// then what is left of the instance is found by its stamp. Gone at any step is
// success.
func (d *Driver) Delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	err := d.delete(ctx, name, expect)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot delete instance %q: %w", name, err)
	}
	return nil
}

func (d *Driver) delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	dom, err := c.domain(name)
	if err != nil {
		return err
	}
	def, err := readDefinition(c, dom, xmlInactive)
	if err != nil {
		return err
	}
	if !def.note.owned(expect) {
		return fault.New(fault.Conflict, "it bears another stamp")
	}
	defer d.changed(dom.UUID)
	if err := destroy(c, dom); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.KVMDestroyed); err != nil {
		return err
	}
	if err := d.removeFiles(c, def, name); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.KVMFilesGone); err != nil {
		return err
	}
	return undefine(c, dom)
}

// removeFiles deletes what was made for an instance. One that was taken over
// keeps the disks it came with: they are not ours.
func (d *Driver) removeFiles(c *conn, def definition, name string) error {
	if def.note.Pool == "" {
		return nil
	}
	where, err := c.openPool(def.note.Pool)
	if fault.Is(err, fault.NeedsOperator) {
		return nil // the pool went, and its files with it
	}
	if err != nil {
		return err
	}
	return where.removeFiles(name, def.domain.UUID)
}

// destroy ends a guest at once; one that does not run is success.
func destroy(c *conn, dom libvirt.Domain) error {
	err := c.CallWithin(destroyTimeout, "end the guest", func(l *libvirt.Libvirt) error { return l.DomainDestroyFlags(dom, 0) })
	if fault.Is(err, fault.NotReady) { // it does not run
		return nil
	}
	return err
}

// undefine removes the definition, with the memory of its firmware and
// whatever else libvirt keeps for it.
func undefine(c *conn, dom libvirt.Domain) error {
	flags := libvirt.DomainUndefineManagedSave | libvirt.DomainUndefineSnapshotsMetadata |
		libvirt.DomainUndefineNvram | libvirt.DomainUndefineCheckpointsMetadata
	err := c.Call("undefine the domain", func(l *libvirt.Libvirt) error { return l.DomainUndefineFlags(dom, flags) })
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
