package kvm

import (
	"context"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

const (
	// destroyTimeout bounds the killing of a guest. libvirt waits 15 s for the
	// guest's process to end after SIGTERM, and then 15 s after SIGKILL.
	destroyTimeout = 45 * time.Second
	// askEvery is the interval between requests to the guest. They are
	// repeated, because a guest that is still booting ignores them.
	askEvery = 3 * time.Second
	// askLimit bounds a single request to shut down. libvirt waits 5 s for an
	// agent, and for ever for a QEMU that hangs.
	askLimit = 8 * time.Second
	lookEach = 200 * time.Millisecond
)

// SetPower implements containerbroker.Broker.
func (d *Driver) SetPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	err := d.setPower(ctx, name, to, timeout)
	return fault.Explain(err, "cannot %s instance %q", to, name)
}

func (d *Driver) setPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	c, err := d.borrow(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	// A domain that this driver has just created is complete and does not run.
	if dom, made := d.made.take(name); made && to == containerbroker.PowerStart {
		at := time.Now()
		dom, err := d.powerUp(c, dom)
		if err == nil && dom.ID > 0 {
			d.begun.put(name, dom, at)
		}
		return err
	}
	dom, err := c.domain(name)
	if fault.Is(err, fault.NotFound) && to == containerbroker.PowerStop {
		return nil
	}
	if err != nil {
		return err
	}
	switch to {
	case containerbroker.PowerStart:
		return d.powerOn(c, dom)
	case containerbroker.PowerStop:
		return d.powerOff(c, dom, timeout)
	case containerbroker.PowerRestart:
		if err := d.powerOff(c, dom, timeout); err != nil {
			return err
		}
		return d.powerOn(c, dom)
	}
	return fault.New(fault.Invalid, "unknown power state")
}

func status(c *conn, dom libvirt.Domain) (containerbroker.Status, error) {
	now, _, err := power(c, dom)
	return now, err
}

// power returns the status of a domain, and libvirt's number of the state.
func power(c *conn, dom libvirt.Domain) (now containerbroker.Status, state int32, err error) {
	var reason int32
	err = c.Call("read the domain's state", func(l *libvirt.Libvirt) (err error) {
		state, reason, err = l.DomainGetState(dom, 0)
		return err
	})
	return statusOf(state, reason), state, err
}

// wake resumes a guest that is paused or suspended.
func wake(c *conn, dom libvirt.Domain, state int32) error {
	if suspended(state) {
		return c.Call("wake the guest", func(l *libvirt.Libvirt) error { return l.DomainPmWakeup(dom, 0) })
	}
	return c.Call("resume the guest", func(l *libvirt.Libvirt) error { return l.DomainResume(dom) })
}

func (d *Driver) powerOn(c *conn, dom libvirt.Domain) error {
	now, state, err := power(c, dom)
	if err != nil {
		return err
	}
	switch now {
	case containerbroker.StatusRunning:
		return nil
	case containerbroker.StatusFrozen:
		return wake(c, dom, state)
	}
	def, err := readDefinition(c, dom, xmlInactiveSecure)
	if err != nil {
		return err
	}
	if def.note != nil && def.note.Making {
		return fault.New(fault.Transient, "its creation was interrupted; it has to be created again")
	}
	if err := d.followAccelerator(c, dom, def); err != nil {
		return err
	}
	if err := refuseSavedDisks(c, dom, def); err != nil {
		return err
	}
	_, err = d.powerUp(c, dom)
	return err
}

// refuseSavedDisks refuses to start a guest from a saved state if it has disks of the
// host. libvirt would open them by the paths of that time, and the numbers of loop
// devices change at each boot of the host.
func refuseSavedDisks(c *conn, dom libvirt.Domain, def definition) error {
	if disks, _ := foundDisks(def.domain.Devices.Disks); len(disks) == 0 {
		return nil
	}
	var saved int32
	err := c.Call("look for a saved state", func(l *libvirt.Libvirt) (err error) {
		saved, err = l.DomainHasManagedSaveImage(dom, 0)
		return err
	})
	if err == nil && saved != 0 {
		err = fault.New(fault.NeedsOperator, "its state was saved by `virsh managedsave`, and its disks may be other devices now: "+
			"`virsh managedsave-remove %s` drops the saved state, then it boots", clean(dom.Name, 64))
	}
	return err
}

// powerUp starts a domain that does not run. It returns the running domain,
// whose ID is 0 if it is not known.
func (d *Driver) powerUp(c *conn, dom libvirt.Domain) (libvirt.Domain, error) {
	var begun libvirt.Domain
	if err := failpoint.Hit(failpoint.KVMBeforeStart); err != nil {
		return begun, err
	}
	begun, err := slowCall(d, c, "start guest "+clean(dom.Name, 64), func(l *libvirt.Libvirt) (libvirt.Domain, error) { return l.DomainCreateWithFlags(dom, 0) })
	if hit := failpoint.Hit(failpoint.KVMStartNoReply); hit != nil && err == nil {
		err = hit
	}
	if err != nil && c.ctx.Err() == nil {
		// The guest may run nonetheless, because an earlier start was still
		// under way, or because only the answer was lost.
		if again, openErr := d.open(c.ctx); openErr == nil {
			defer again.Close()
			if now, lookErr := status(again, dom); lookErr == nil && now == containerbroker.StatusRunning {
				return libvirt.Domain{}, nil
			}
		}
	}
	return begun, err
}

// followAccelerator switches a guest that hostler made to the accelerator that
// the host now has, because a host may gain or lose KVM.
func (d *Driver) followAccelerator(c *conn, dom libvirt.Domain, def definition) error {
	if def.note == nil || def.note.Namespace != d.opts.Namespace || def.note.Image == "" || def.domain.Type == d.domainType() {
		return nil
	}
	def.domain.Type = d.domainType()
	def.domain.CPU = cpuFor(def.domain.Type)
	defer d.changed(dom.UUID)
	return d.redefine(c, &def)
}

// powerOff stops a guest. Until timeout has passed, it asks through the agent
// or the power button, and then it uses force. It wakes a suspended guest
// first. It kills a paused guest at once, because the guest would not react,
// and after a resume the cause of the pause may pause it again.
func (d *Driver) powerOff(c *conn, dom libvirt.Domain, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	var asked time.Time
	heard, woken := false, false
	for {
		now, state, err := power(c, dom)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if now == containerbroker.StatusStopped {
			return nil
		}
		asleep := suspended(state)
		if !time.Now().Before(deadline) || now == containerbroker.StatusFrozen && !asleep {
			return destroy(c, dom)
		}
		if asleep && !woken {
			woken = wake(c, dom, state) == nil // if it fails, the next round tries again
		}
		if !asleep && time.Since(asked) >= askEvery && !heard {
			heard = d.askToStop(c.ctx, dom, min(askLimit, time.Until(deadline)))
			asked = time.Now()
		}
		if err := pause.For(c.ctx, lookEach); err != nil {
			return err
		}
	}
}

// askToStop asks the guest's agent to shut down. Without an agent that answers,
// it presses the power button. It returns true if there is no need to ask
// again. It uses a separate connection, because a request that takes too long,
// e.g. to a QEMU that hangs, can be given up only by closing its connection.
// libvirt goes on with the request nonetheless.
func (d *Driver) askToStop(ctx context.Context, dom libvirt.Domain, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := d.open(ctx)
	if err != nil {
		return false
	}
	defer c.Close()
	def, err := readDefinition(c, dom, 0)
	if err == nil && agentConnected(def) {
		err := c.Call("ask the guest's agent to shut down", func(l *libvirt.Libvirt) error {
			return l.DomainShutdownFlags(dom, libvirt.DomainShutdownGuestAgent)
		})
		if err == nil {
			return true
		}
	}
	_ = c.Call("press the guest's power button", func(l *libvirt.Libvirt) error {
		return l.DomainShutdownFlags(dom, libvirt.DomainShutdownAcpiPowerBtn)
	})
	select {
	case <-c.Gone:
		return true
	default:
		return false
	}
}
