package provisioner

import (
	"context"
	"fmt"

	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// release detaches the instance's storage, removes its stamp and deletes the
// record. The storage is detached because no record reserves it for the
// instance any more. release uses the instance's own name, since the instance
// may have been renamed by hand and another instance may bear the machine's
// name.
func (o *operation) release(ctx context.Context, s Step) error {
	stamper, ok := o.w.Broker.(containerbroker.Stamper)
	if !ok {
		return fault.New(fault.Invalid, "cannot release: the %s driver cannot remove stamps", o.w.Type)
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	name, seen := s.Instance.Name, *s.Instance.Stamp
	o.d.Machine.Name, o.d.Machine.Disks, o.d.Machine.Stamp.Token = name, nil, seen.Token
	var disks []containerbroker.Change
	for _, c := range o.w.Differ.Diff(o.d.Machine, *s.Instance) {
		if _, is := containerbroker.DiskOf(c.Field); is {
			disks = append(disks, c)
		}
	}
	if len(disks) > 0 {
		if err := o.update(ctx, Step{Changes: disks}); err != nil {
			return err
		}
	}
	if err := stamper.Unstamp(ctx, name, seen); err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot release the instance: %w", err)
	}
	o.event(ctx, state.LevelInfo, "Released", "the instance is kept")
	return o.forget(ctx)
}
