package kvm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/kvm/rpc"
)

// Create implements containerbroker.Broker. It first defines the stamped
// domain, marked as unfinished, so that everything that exists can be found by
// its stamp; then it makes the disks; then it removes the mark. Every step can
// be repeated.
func (d *Driver) Create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	if err := d.create(ctx, m, progress); err != nil {
		return fmt.Errorf("cannot create instance %q: %w", m.Name, err)
	}
	return nil
}

func (d *Driver) create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	settings, err := settingsOf(m)
	if err != nil {
		return err
	}
	if !digestPattern.MatchString(m.ImageID) {
		return fault.New(fault.Invalid, "no image is named")
	}
	defer d.hold(m.Name)()
	for tries := 0; ; tries++ {
		err := d.goOn(ctx, m, settings, progress)
		if tries == lostReplies || !errors.Is(err, rpc.ErrLost) || ctx.Err() != nil {
			return err
		}
		// The call may or may not have taken effect: look again and go on from
		// there.
	}
}

// lostReplies is how many answers of libvirt a single Create may lose.
const lostReplies = 3

// goOn continues the creation of an instance from its present state.
func (d *Driver) goOn(ctx context.Context, m containerbroker.Machine, settings containerbroker.Settings, progress containerbroker.Progress) error {
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := d.standing(c, m)
	if err != nil || found.whole {
		return err
	}
	p, seed, err := d.plan(ctx, c, m, settings)
	if err != nil {
		return err
	}
	if found.dom == nil {
		progress.Report("create", "creating "+m.Name, -1)
		dom, err := d.define(c, p)
		if err != nil {
			return err
		}
		found.dom = &dom
	}
	defer d.changed(found.dom.UUID)
	return d.furnish(c, p, *found.dom, seed)
}

// hold marks an instance as being created by this process.
func (d *Driver) hold(name string) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.making[name]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.making[name]--; d.making[name] == 0 {
			delete(d.making, name)
		}
	}
}

// made is the progress of this create attempt: dom is nil before the domain is
// defined.
type made struct {
	dom   *libvirt.Domain
	whole bool
}

// standing reads how far the creation has come. A domain that another attempt
// made is a fault.Conflict.
func (d *Driver) standing(c *conn, m containerbroker.Machine) (made, error) {
	dom, err := c.domain(m.Name)
	if fault.Is(err, fault.NotFound) {
		return made{}, nil
	}
	if err != nil {
		return made{}, err
	}
	def, err := readDefinition(c, dom, xmlInactive)
	if err != nil {
		return made{}, err
	}
	if def.note.owned(m.Stamp) && def.note.Token == m.Stamp.Token {
		return made{&dom, !def.note.Making}, nil
	}
	owner := "it was not made by hostler"
	if n := def.note; n != nil {
		owner = fmt.Sprintf("it belongs to namespace %q", clean(n.Namespace, 64))
		if n.owned(m.Stamp) {
			owner = "an earlier attempt left it"
		}
	}
	return made{}, fault.New(fault.Conflict, "a domain of that name exists; %s", owner)
}

// plan gathers everything that the machine's domain and files are built from.
func (d *Driver) plan(ctx context.Context, c *conn, m containerbroker.Machine, s containerbroker.Settings) (plan, []byte, error) {
	name := m.Pool
	if name == "" {
		name = d.opts.Pool
	}
	where, err := c.openPool(name)
	if err != nil {
		return plan{}, nil, err
	}
	key, err := d.sealKey(ctx, c, m.Stamp.Namespace, true)
	if err != nil {
		return plan{}, nil, err
	}
	record, err := seal(key, m.Stamp.Record)
	if err != nil {
		return plan{}, nil, fault.New(fault.Invalid, "cannot seal the record: %v", err)
	}
	uuid := domainUUID(m.Stamp, m.Name)
	seed, sum, err := seedOf(m, uuid)
	if err != nil {
		return plan{}, nil, err
	}
	return plan{
		machine: m, uuid: uuid, settings: s, kind: d.domainType(), network: d.opts.Network,
		root: where.path(rootName(m.Name, uuid)), seed: where.path(seedName(m.Name, uuid, sum)), log: where.path(logName(m.Name, uuid)),
		note: note{
			Namespace: m.Stamp.Namespace, UID: m.Stamp.UID, Token: m.Stamp.Token, Store: m.Stamp.Store, Domain: uuid, Record: record, Making: true,
			Image: m.ImageID, Created: time.Now().UnixNano(), Pool: name, RootDisk: s.RootDisk,
			UserData: digest(key, s.UserData), PlainProxies: !cloudinit.HasProxyUsers(m.Guest), NetworkConfig: s.NetworkConfig, Sizes: sizesOf(m),
		},
	}, seed, nil
}

func (d *Driver) define(c *conn, p plan) (libvirt.Domain, error) {
	def, err := p.domain()
	if err != nil {
		return libvirt.Domain{}, err
	}
	text, err := def.Marshal()
	if err != nil {
		return libvirt.Domain{}, fault.New(fault.Invalid, "cannot write its definition: %v", err)
	}
	dom, err := slowCall(d, c, "define the domain", func(l *libvirt.Libvirt) (libvirt.Domain, error) { return l.DomainDefineXMLFlags(text, 0) })
	if hit := failpoint.Hit(failpoint.KVMDefineNoReply); hit != nil && err == nil {
		err = hit
	}
	return dom, err
}

// furnish makes the files of a defined domain and then clears its Making mark.
func (d *Driver) furnish(c *conn, p plan, dom libvirt.Domain, seed []byte) error {
	where, err := c.openPool(p.note.Pool)
	if err != nil {
		return err
	}
	if err := where.overlay(filepath.Base(p.root), imageName(d.opts.Namespace, p.note.Image), p.settings.RootDisk); err != nil {
		return d.undo(c, where, p, dom, err)
	}
	if err := failpoint.Hit(failpoint.KVMOverlayMade); err != nil {
		return err
	}
	if err := where.write(filepath.Base(p.seed), seed); err != nil {
		return d.undo(c, where, p, dom, err)
	}
	if err := failpoint.Hit(failpoint.KVMSeedMade); err != nil {
		return err
	}
	if err := setAutostart(c, dom, p.settings.Autostart); err != nil {
		return err
	}
	p.note.Making = false
	return setNote(c, dom, p.note)
}

// undo removes an instance whose creation failed for good, so that trying again
// is useless.
func (d *Driver) undo(c *conn, where *pool, p plan, dom libvirt.Domain, cause error) error {
	if !fault.Is(cause, fault.Invalid) && !fault.Is(cause, fault.NotFound) {
		return cause // creation is tried again, or the instance is found by its stamp
	}
	err := where.removeFiles(p.uuid)
	if err == nil {
		err = undefine(c, dom)
	}
	if err != nil {
		return fmt.Errorf("%w (and its remains cannot be removed: %v)", cause, err)
	}
	return cause
}

func setAutostart(c *conn, dom libvirt.Domain, on bool) error {
	flag := int32(0)
	if on {
		flag = 1
	}
	return c.Call("set whether it starts with the host", func(l *libvirt.Libvirt) error { return l.DomainSetAutostart(dom, flag) })
}

// setNote writes hostler's element into a domain's metadata and leaves other
// elements alone.
func setNote(c *conn, dom libvirt.Domain, n note) error {
	text, err := n.text()
	if err != nil {
		return err
	}
	return setMetadata(c, dom, libvirt.OptString{text})
}

func setMetadata(c *conn, dom libvirt.Domain, text libvirt.OptString) error {
	return c.Call("stamp the domain", func(l *libvirt.Libvirt) error {
		return l.DomainSetMetadata(dom, int32(libvirt.DomainMetadataElement), text,
			libvirt.OptString{metadataKey}, libvirt.OptString{metadataURI}, libvirt.DomainAffectConfig)
	})
}
