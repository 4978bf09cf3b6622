package kvm

import (
	"context"
	"fmt"
	"path/filepath"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Delete implements containerbroker.Broker. The definition is removed last, so
// that an interrupted deletion can be found by the stamp. An instance that is
// already gone counts as deleted.
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
	if !def.note.owned(expect) || def.note.Token != expect.Token {
		return fault.New(fault.Conflict, "it has another stamp")
	}
	where, err := poolOf(c, def)
	if err != nil {
		return err
	}
	defer d.changed(dom.UUID)
	if err := destroy(c, dom); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.KVMDestroyed); err != nil {
		return err
	}
	if where != nil {
		if err := where.removeFiles(def.domain.UUID); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(failpoint.KVMFilesGone); err != nil {
		return err
	}
	return undefine(c, dom)
}

// poolOf returns the pool with the files that hostler made for an instance. It
// returns nil for an adopted instance, which keeps its own disks. If libvirt
// does not know the pool, the files may still exist, so poolOf returns
// fault.NeedsOperator and the instance is not deleted.
func poolOf(c *conn, def definition) (*pool, error) {
	if def.note.Pool == "" {
		return nil, nil //nolint:nilnil // there is no pool, and that is no failure
	}
	where, err := c.openPool(def.note.Pool)
	if !fault.Is(err, fault.NeedsOperator) {
		return where, err
	}
	name := clean(def.domain.Name, 64)
	folder := clean(filepath.Dir(fileOf(def.domain.Devices.Disks, rootTarget)), 512)
	return nil, fault.New(fault.NeedsOperator, "its files cannot be removed: %w; define the pool again for the folder of its root disk "+
		"(`virsh pool-define-as %s dir --target %s`, `virsh pool-start %[2]s`) and run `hostler retry machine/%[4]s`; "+
		"if the files are lost, run `virsh undefine %[4]s`", err, clean(def.note.Pool, 64), folder, name)
}

// destroy kills a guest at once. It is success if the guest does not run.
func destroy(c *conn, dom libvirt.Domain) error {
	err := c.CallWithin(destroyTimeout, "end the guest", func(l *libvirt.Libvirt) error { return l.DomainDestroyFlags(dom, 0) })
	if fault.Is(err, fault.NotReady) { // it does not run
		return nil
	}
	return err
}

// undefine removes the definition and everything that libvirt stores with it,
// e.g. the firmware's NVRAM. An absent definition is success.
func undefine(c *conn, dom libvirt.Domain) error {
	flags := libvirt.DomainUndefineManagedSave | libvirt.DomainUndefineSnapshotsMetadata |
		libvirt.DomainUndefineNvram | libvirt.DomainUndefineCheckpointsMetadata
	err := c.Call("undefine the domain", func(l *libvirt.Libvirt) error { return l.DomainUndefineFlags(dom, flags) })
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
