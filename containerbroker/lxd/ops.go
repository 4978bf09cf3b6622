package lxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// editTries bounds how often edit() tries a change, if other clients change the
// instance at the same time.
const editTries = 5

// Update implements containerbroker.Broker. It does not touch keys and devices
// that hostler does not write.
func (d *Driver) Update(ctx context.Context, m containerbroker.Machine, asked []containerbroker.Change) error {
	want, err := settingsOf(m)
	if err != nil {
		return fmt.Errorf("cannot update instance %q: %w", m.Name, err)
	}
	if err := containerbroker.CheckUpdate(asked, want, containerbroker.Instance{}, nil); err != nil {
		return fmt.Errorf("cannot update instance %q: %w", m.Name, err)
	}
	if err := d.freeAddresses(ctx, m, asked); err != nil {
		return fault.Explain(err, "cannot update instance %q", m.Name)
	}
	pinned := false
	var refused error
	err = d.edit(ctx, m.Name, func(c *client, found api.Instance, put *api.InstancePut) (err error) {
		if have := stampOf(found.Config); have == nil || !sameOwner(have, m.Stamp) {
			return fault.New(fault.Conflict, "it has another stamp")
		}
		var changes []containerbroker.Change
		if changes, refused, err = d.refuseMemory(c, found, asked, want.Memory); err != nil {
			return err
		}
		pinned = pinInstanceID(put.Config, m, changes)
		if err := d.reattach(c, m, found, put, changes); err != nil {
			return err
		}
		_, root := rootDisk(found.ExpandedDevices)
		for _, change := range changes {
			if change.Field == containerbroker.FieldRootDisk {
				setRootDisk(put, root["pool"], want.RootDisk)
			} else if !containerbroker.IsDevice(change.Field) && !setField(put.Config, change.Field, want) {
				return fault.New(fault.Invalid, "it has no field %q", change.Field)
			}
		}
		if changed(found, *put) {
			setKey(put.Config, keyStore, m.Stamp.Store)
		}
		return nil
	})
	if err == nil && pinned {
		err = d.restoreInstanceID(ctx, m.Name)
	}
	return fault.Explain(cmp.Or(err, refused), "cannot update instance %q", m.Name)
}

// freeAddresses takes the addresses from the interfaces that others replace, since LXD lets
// no interface have the address of another, even if the same request removes that. The
// interfaces themselves stay until the request that also brings the others, which LXD may
// refuse.
func (d *Driver) freeAddresses(ctx context.Context, m containerbroker.Machine, asked []containerbroker.Change) error {
	former := replacedNICs(asked)
	if len(former) == 0 {
		return nil
	}
	return d.edit(ctx, m.Name, func(_ *client, found api.Instance, put *api.InstancePut) error {
		if have := stampOf(found.Config); have == nil || !sameOwner(have, m.Stamp) {
			return fault.New(fault.Conflict, "it has another stamp")
		}
		for _, change := range former {
			name, _ := containerbroker.NICOf(change.Field)
			if device := maps.Clone(found.Devices[name]); device != nil {
				maps.DeleteFunc(device, func(key, _ string) bool {
					return slices.Contains([]string{keyFilterIPv4, keyFilterIPv6, keyIPv4, keyIPv6}, key)
				})
				put.Devices[name] = device
			}
		}
		return nil
	})
}

// replacedNICs returns the removals of interfaces that come with other changes of
// interfaces.
func replacedNICs(changes []containerbroker.Change) []containerbroker.Change {
	var removed, others []containerbroker.Change
	for _, c := range changes {
		switch _, is := containerbroker.NICOf(c.Field); {
		case is && c.To == "":
			removed = append(removed, c)
		case is:
			others = append(others, c)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return removed
}

// Stamp implements containerbroker.Stamper. If the instance belonged to another
// machine, its devices become the instance's own (keyInstanceDevices).
func (d *Driver) Stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("cannot stamp instance %q: %w", name, err)
	}
	err := d.edit(ctx, name, func(_ *client, found api.Instance, put *api.InstancePut) error {
		have := stampOf(found.Config)
		if err := containerbroker.MayStamp(have, seen, s); err != nil {
			return err
		}
		if have == nil || have.UID != s.UID {
			markInstanceDevices(put.Config, found.Devices)
		}
		writeStamp(put.Config, s)
		if found.Config = put.Config; have == nil && halfMade(found) {
			put.Config[keyWhole] = "true"
		}
		return nil
	})
	return fault.Explain(err, "cannot stamp instance %q", name)
}

// Unstamp implements containerbroker.Stamper. An instance that does not exist
// counts as unstamped.
func (d *Driver) Unstamp(ctx context.Context, name string, seen containerbroker.Stamp) error {
	err := d.edit(ctx, name, func(_ *client, found api.Instance, put *api.InstancePut) error {
		if err := containerbroker.MayUnstamp(stampOf(found.Config), seen); err != nil {
			return err
		}
		writeStamp(put.Config, containerbroker.Stamp{})
		delete(put.Config, keyInstanceDevices)
		delete(put.Config, keyWhole)
		unpinInstanceID(put.Config)
		return nil
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot release instance %q: %w", name, err)
	}
	return nil
}

// edit reads an instance, lets change modify its configuration and sends the
// result with the ETag that it read, so that no other client's change is lost.
// If change modifies nothing, edit sends nothing.
func (d *Driver) edit(ctx context.Context, name string, change func(*client, api.Instance, *api.InstancePut) error) error {
	c := d.open(ctx, d.opts.RequestTimeout)
	for try := 1; ; try++ {
		var found api.Instance
		etag, err := c.get(instancePath(name), &found)
		if err != nil {
			return err
		}
		put := found.Writable()
		put.Config = maps.Clone(found.Config)
		if put.Config == nil {
			put.Config = map[string]string{}
		}
		put.Devices = maps.Clone(found.Devices)
		if err := change(c, found, &put); err != nil {
			return err
		}
		if !changed(found, put) {
			return nil
		}
		op, err := c.start(http.MethodPut, instancePath(name), put, etag)
		if err == nil {
			_, err = d.wait(c, op)
		}
		if err == nil || try == editTries || ctx.Err() != nil {
			return err
		}
		// If another client changed the instance, or the outcome is unknown,
		// read the instance again and make the remaining changes.
		var forgotten *outcomeUnknown
		if !changedMeanwhile(err) && !errors.As(err, &forgotten) {
			return err
		}
	}
}

func changed(found api.Instance, put api.InstancePut) bool {
	return !maps.Equal(put.Config, found.Config) || !maps.EqualFunc(put.Devices, found.Devices, maps.Equal)
}

// SetPower implements containerbroker.Broker.
func (d *Driver) SetPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	c := d.open(ctx, d.opts.RequestTimeout)
	var err error
	switch to {
	case containerbroker.PowerStart:
		err = d.powerOn(c, name)
	case containerbroker.PowerStop:
		if err = d.powerOff(c, name, timeout); fault.Is(err, fault.NotFound) {
			err = nil
		}
	case containerbroker.PowerRestart:
		if err = d.powerOff(c, name, timeout); err == nil {
			err = d.powerOn(c, name)
		}
	default:
		err = fault.New(fault.Invalid, "unknown power state")
	}
	return fault.Explain(err, "cannot %s instance %q", to, name)
}

// change requests a change of the power state and waits for it.
func (d *Driver) change(c *client, name string, put api.InstanceStatePut) error {
	if put.Action == "stop" {
		d.inits.see(name, 0) // the init will end because of this request, so do not report its end
	}
	op, err := c.start(http.MethodPut, instancePath(name)+"/state", put, "")
	if err != nil {
		return err
	}
	if put.Action == "stop" {
		if err := failpoint.Hit(failpoint.LXDStopping); err != nil {
			return err
		}
	}
	_, err = d.wait(c, op)
	return err
}

// statusAfter reads the power state of an instance after a change of that state
// failed with err. Unless LXD itself reported the failure, the change may still
// be running, so statusAfter waits for it first.
func (d *Driver) statusAfter(c *client, name string, err error) (containerbroker.Status, error) {
	var refused *operationError
	if !errors.As(err, &refused) {
		if _, err := d.awaitOperations(c, name); err != nil {
			return "", err
		}
	}
	found, err := d.settled(c, name)
	return statusOf(found.StatusCode), err
}

// startAgain is the delay between attempts to start an instance that LXD is
// still cleaning up.
const startAgain = 100 * time.Millisecond

func (d *Driver) powerOn(c *client, name string) error {
	if d.own.takeCreated(name) {
		return d.startInstance(c, name, "start")
	}
	found, err := d.settled(c, name)
	if err == nil && halfMade(found) {
		if _, err = d.awaitOperations(c, name); err == nil {
			found, err = d.read(c, name)
		}
	}
	if err != nil {
		return err
	}
	if halfMade(found) {
		return fault.New(fault.Transient, "%s was interrupted during its creation; it has to be created again", c.dialect.Name)
	}
	if found.Config[keyPinned] != "" {
		if err := d.restoreInstanceID(c.ctx, name); err != nil {
			return err
		}
	}
	action := "start"
	switch statusOf(found.StatusCode) {
	case containerbroker.StatusRunning:
		return nil
	case containerbroker.StatusFrozen:
		action = "unfreeze"
	}
	return d.startInstance(c, name, action)
}

// startInstance starts or unfreezes an instance. It repeats the request while
// LXD cleans up after the instance's death.
func (d *Driver) startInstance(c *client, name, action string) error {
	if err := failpoint.Hit(failpoint.LXDBeforeStart); err != nil {
		return err
	}
	var err error
	for {
		err = d.change(c, name, api.InstanceStatePut{Action: action})
		if err == nil {
			d.own.noteStart(name)
		}
		if err == nil || c.ctx.Err() != nil || fault.Is(err, fault.NotFound) {
			return err
		}
		status, lookErr := d.statusAfter(c, name, err)
		if lookErr != nil {
			return fmt.Errorf("%v; cannot look at it: %w", err, lookErr)
		}
		if status == containerbroker.StatusRunning {
			return nil
		}
		if !d.inits.justDied(name) {
			break
		}
		if err := pause.For(c.ctx, startAgain); err != nil {
			return err
		}
	}
	if tail := d.startLog(c, name); tail != "" {
		return fmt.Errorf("%w; LXC says: %s", err, tail)
	}
	return err
}

// powerOff asks the guest to shut down, and stops the instance by force if it
// still runs after timeout, rounded up to whole seconds. If timeout is 0, it
// uses force at once.
func (d *Driver) powerOff(c *client, name string, timeout time.Duration) error {
	stop := func(put api.InstanceStatePut) error {
		put.Action = "stop"
		err := d.change(c, name, put)
		if err == nil || c.ctx.Err() != nil || fault.Is(err, fault.NotFound) {
			return err
		}
		status, lookErr := d.statusAfter(c, name, err)
		if lookErr != nil {
			return fmt.Errorf("%v; cannot look at it: %w", err, lookErr)
		}
		if status == containerbroker.StatusStopped {
			return nil
		}
		return err
	}
	if timeout > 0 {
		seconds := int((timeout + time.Second - 1) / time.Second)
		err := stop(api.InstanceStatePut{Timeout: seconds})
		if err == nil || c.ctx.Err() != nil || fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return stop(api.InstanceStatePut{Force: true, Timeout: -1})
}
