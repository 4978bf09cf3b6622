package kvm

import (
	"context"
	"fmt"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

const (
	// destroyTimeout bounds the killing of a guest: libvirt waits 15 s for its
	// process to end after SIGTERM, and then 15 s after SIGKILL.
	destroyTimeout = 45 * time.Second
	// askEvery is the interval between requests to shut down: a guest that is
	// still booting ignores them.
	askEvery = 3 * time.Second
	// askLimit bounds a single request to shut down: libvirt waits 5 s for an
	// agent, and without a limit for a QEMU that hangs.
	askLimit = 8 * time.Second
	lookEach = 200 * time.Millisecond
)

// SetPower implements containerbroker.Broker.
func (d *Driver) SetPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	err := d.setPower(ctx, name, to, timeout)
	if err != nil {
		return fmt.Errorf("cannot %s instance %q: %w", to, name, err)
	}
	return nil
}

func (d *Driver) setPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
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

// power returns the status together with libvirt's own state.
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
	def, err := readDefinition(c, dom, xmlInactive)
	if err != nil {
		return err
	}
	if def.note != nil && def.note.Making {
		return fault.New(fault.Transient, "its creation was interrupted; it has to be created again")
	}
	if err := d.followAccelerator(c, dom); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.KVMBeforeStart); err != nil {
		return err
	}
	_, err = slowCall(d, c, "start guest "+clean(dom.Name, 64), func(l *libvirt.Libvirt) (libvirt.Domain, error) { return l.DomainCreateWithFlags(dom, 0) })
	if hit := failpoint.Hit(failpoint.KVMStartNoReply); hit != nil && err == nil {
		err = hit
	}
	if err != nil && c.ctx.Err() == nil {
		// The guest may run nonetheless: an earlier start was under way, or the
		// answer was lost.
		if again, openErr := d.open(c.ctx); openErr == nil {
			defer again.Close()
			if now, lookErr := status(again, dom); lookErr == nil && now == containerbroker.StatusRunning {
				return nil
			}
		}
	}
	return err
}

// followAccelerator switches one of hostler's guests to the present
// accelerator: a host may gain or lose KVM.
func (d *Driver) followAccelerator(c *conn, dom libvirt.Domain) error {
	def, err := readDefinition(c, dom, xmlInactiveSecure)
	if err != nil || def.note == nil || def.note.Namespace != d.opts.Namespace || def.note.Image == "" || def.domain.Type == d.domainType() {
		return err
	}
	def.domain.Type = d.domainType()
	def.domain.CPU = cpuFor(def.domain.Type)
	defer d.changed(dom.UUID)
	return d.redefine(c, &def)
}

// powerOff stops a guest: through its agent or power button until timeout has
// passed, then by force. A suspended guest is woken first. A paused guest is
// killed at once: it would not react, and after a resume the cause may pause it
// again.
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

// askToStop asks the guest's agent to shut down, or else presses the power
// button. It returns true if there is no need to ask again. It uses a
// connection of its own, which is lost if QEMU hangs or the agent is slow:
// libvirt continues the request without it.
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
