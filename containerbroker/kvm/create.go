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

// Create implements containerbroker.Broker. It first defines the domain, with
// the stamp and a mark that the domain is unfinished, so that everything that
// exists can be found by its stamp. Then it makes the disks and removes the
// mark. Every step can be repeated.
func (d *Driver) Create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	return fault.Explain(d.create(ctx, m, progress), "cannot create instance %q", m.Name)
}

func (d *Driver) create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	settings, err := settingsOf(m)
	if err == nil && !digestPattern.MatchString(m.ImageID) {
		err = fault.New(fault.Invalid, "no image is named")
	}
	if err != nil {
		return containerbroker.NotMade(err)
	}
	defer d.hold(m.Name)()
	for tries := 0; ; tries++ {
		err := d.goOn(ctx, m, settings, progress)
		if err != nil { // the next create reads them again
			d.pools.clear()
			d.capacities.clear()
		}
		known := !errors.Is(err, rpc.ErrLost) && !errors.Is(err, rpc.ErrLate)
		if tries == 0 && err != nil && known && d.leftNothing(ctx, m) {
			return containerbroker.NotMade(err)
		}
		if tries == lostReplies || !errors.Is(err, rpc.ErrLost) || ctx.Err() != nil {
			return err
		}
		// The call whose answer was lost may have taken effect, so look again
		// and go on from the present state.
	}
}

// leftNothing reports whether a failed create attempt left no domain.
func (d *Driver) leftNothing(ctx context.Context, m containerbroker.Machine) bool {
	c, err := d.borrow(ctx)
	if err != nil {
		return false
	}
	defer c.Close()
	found, err := d.standing(c, m)
	return err == nil && found.dom == nil || fault.Is(err, fault.Conflict)
}

// lostReplies is how often a single Create goes on after an answer of libvirt
// was lost.
const lostReplies = 3

// goOn continues the creation of an instance from its present state.
func (d *Driver) goOn(ctx context.Context, m containerbroker.Machine, settings containerbroker.Settings, progress containerbroker.Progress) error {
	c, err := d.borrow(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := d.standing(c, m)
	if err != nil || found.whole {
		return err
	}
	p, seed, where, err := d.plan(ctx, c, m, settings)
	if err != nil {
		return err
	}
	fresh := found.dom == nil
	if fresh {
		progress.Report("create", "creating "+m.Name, -1)
		dom, err := d.define(c, p)
		if err != nil {
			return err
		}
		found.dom = &dom
	}
	defer d.changed(found.dom.UUID)
	if err := d.furnish(c, where, p, *found.dom, fresh, seed); err != nil {
		return err
	}
	d.made.put(found.dom.Name, *found.dom, time.Now())
	return nil
}

// hold marks an instance as being created by this process, until the caller
// calls release.
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

// made says how far a create attempt has come. dom is nil before the domain is
// defined. whole is true if the creation is complete.
type made struct {
	dom   *libvirt.Domain
	whole bool
}

// standing reads how far the creation has come. It returns fault.Conflict if
// another create attempt or tool made the domain.
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

// plan returns the plan of the machine's domain, the content of the seed and
// the pool for the files.
func (d *Driver) plan(ctx context.Context, c *conn, m containerbroker.Machine, s containerbroker.Settings) (plan, []byte, *pool, error) {
	name := m.Pool
	if name == "" {
		name = d.opts.Pool
	}
	where, err := d.recentPool(c, name)
	if err != nil {
		return plan{}, nil, nil, err
	}
	key, err := d.sealKey(ctx, c, m.Stamp.Namespace, true)
	if err != nil {
		return plan{}, nil, nil, err
	}
	record, err := seal(key, m.Stamp.Record)
	if err != nil {
		return plan{}, nil, nil, fault.New(fault.Invalid, "cannot seal the record: %v", err)
	}
	uuid := domainUUID(m.Stamp, m.Name)
	seed, sum, err := seedOf(m, uuid)
	if err != nil {
		return plan{}, nil, nil, err
	}
	return plan{
		machine: m, uuid: uuid, settings: s, kind: d.domainType(), network: d.opts.Network,
		root: where.path(rootName(m.Name, uuid)), seed: where.path(seedName(m.Name, uuid, sum)), log: where.path(logName(m.Name, uuid)),
		note: note{
			Namespace: m.Stamp.Namespace, UID: m.Stamp.UID, Token: m.Stamp.Token, Store: m.Stamp.Store, Domain: uuid, Record: record, Making: true,
			Image: m.ImageID, Created: time.Now().UnixNano(), Pool: name, RootDisk: s.RootDisk,
			UserData: digest(key, s.UserData), PlainProxies: !cloudinit.HasProxyUsers(m.Guest), NetworkConfig: s.NetworkConfig,
			Addresses: s.Addresses, Sizes: sizesOf(m),
		},
	}, seed, where, nil
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
// fresh is true if this call of Create has just defined the domain.
func (d *Driver) furnish(c *conn, where *pool, p plan, dom libvirt.Domain, fresh bool, seed []byte) error {
	image := imageName(d.opts.Namespace, p.note.Image)
	least, err := d.imageCapacity(where, image)
	if err == nil {
		err = where.overlay(filepath.Base(p.root), image, p.settings.RootDisk, least)
	}
	if err != nil { // the image may have been removed since it was last read
		if _, gone := where.lookup(image); fault.Is(gone, fault.NotFound) {
			err = fault.New(fault.NotFound, "its image is no longer in storage pool %q", where.pool.Name)
		}
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
	if !fresh || p.settings.Autostart {
		if err := setAutostart(c, dom, p.settings.Autostart); err != nil {
			return err
		}
	}
	p.note.Making = false
	return setNote(c, dom, p.note)
}

// undo removes an instance whose creation libvirt refused. It returns cause.
func (d *Driver) undo(c *conn, where *pool, p plan, dom libvirt.Domain, cause error) error {
	if errors.Is(cause, rpc.ErrLost) || c.ctx.Err() != nil {
		return cause // the caller tries again, or finds the instance by its stamp
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

// setNote writes hostler's element into a domain's metadata. Other elements
// stay unchanged.
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
