package lxd

import (
	"context"
	"fmt"
	"net/http"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// deleteTries is how often Delete tries to delete an instance while LXD
// refuses.
const deleteTries = 4

// Delete implements containerbroker.Broker. An instance that is already gone
// counts as deleted.
func (d *Driver) Delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	c := d.open(ctx, d.opts.RequestTimeout)
	for try := 1; ; try++ {
		err := d.deleteOnce(c, name, expect)
		if err == nil || fault.Is(err, fault.NotFound) {
			return nil
		}
		if ctx.Err() != nil || fault.Is(err, fault.Conflict) || fault.Is(err, fault.NeedsOperator) {
			return fmt.Errorf("cannot delete instance %q: %w", name, err)
		}
		// LXD refuses while another operation runs on the instance, e.g. an
		// operation of hostler whose answer was lost. Wait for that operation,
		// or for RetryDelay if none is listed. If LXD does not answer, return
		// the error.
		found, waitErr := d.awaitOperations(c, name)
		if try == deleteTries || waitErr != nil {
			return fault.New(fault.Transient, "cannot delete instance %q: %w", name, err)
		}
		if !found {
			if err := pause.For(ctx, d.opts.RetryDelay); err != nil {
				return fmt.Errorf("cannot delete instance %q: %w", name, err)
			}
		}
	}
}

func (d *Driver) deleteOnce(c *client, name string, expect containerbroker.Stamp) error {
	found, err := d.read(c, name)
	if err != nil {
		return err
	}
	if !stampOf(found.Config).Is(expect) {
		return fault.New(fault.Conflict, "it has another stamp")
	}
	var stopErr error
	if found.StatusCode != api.Stopped {
		stopErr = d.change(c, name, api.InstanceStatePut{Action: "stop", Force: true, Timeout: -1})
		if fault.Is(stopErr, fault.NotFound) || c.ctx.Err() != nil {
			return stopErr
		}
		// A half-made or broken instance cannot be stopped but may still be
		// deleted, so go on.
	}
	op, err := c.start(http.MethodDelete, instancePath(name), nil, "")
	if err == nil {
		if err := failpoint.Hit(failpoint.LXDDeleteSent); err != nil {
			return err
		}
		_, err = d.wait(c, op)
	}
	if err != nil && stopErr != nil {
		return fmt.Errorf("%w; and it cannot be stopped: %v", err, stopErr)
	}
	return err
}
