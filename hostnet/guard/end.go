package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler/hostnet"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/hostlock"
)

const (
	// lockLimit is the time to wait for a lock. If a process holds the lock
	// longer, the guard continues without the lock.
	lockLimit = 2 * time.Second
	// rounds is the maximum number of observations during a restore. One is not
	// enough, because the kernel drops routes together with addresses, and a step
	// fails while other steps that it needs are missing.
	rounds = 8
)

// askToConfirm leaves the change armed until the operator confirms it.
func (g *Guard) askToConfirm(ctx context.Context, cp *checkpoint, wait time.Duration) error {
	next := *cp
	next.Phase, next.Deadline = Confirming, boottime()+wait
	err := g.locked(ctx, cp, func() error { return g.write(&next) })
	if err != nil {
		return g.undo(ctx, cp, err)
	}
	g.o.Log.Info("The host's network was changed and waits to be confirmed.", "object", cp.Object, "limit", wait)
	return next.waiting(cp.Object)
}

// commit keeps the change by removing the checkpoint.
func (g *Guard) commit(ctx context.Context, cp *checkpoint) error {
	err := g.locked(ctx, cp, func() error {
		if err := g.remove(); err != nil {
			return err
		}
		g.o.Log.Info("The change of the host's network is confirmed.", "object", cp.Object)
		if err := record(g.o.Dir, cp, true, "", false); err != nil {
			g.o.Log.Warn("The outcome of a change cannot be recorded.", "error", err)
		}
		return nil
	})
	switch {
	case err == nil:
		return failpoint.Hit(failpoint.NetCommitted)
	case errors.Is(err, errOvertaken):
		return err
	}
	return g.undo(ctx, cp, err)
}

// undo restores the previous state. The returned error says why the change
// failed.
func (g *Guard) undo(ctx context.Context, cp *checkpoint, why error) error {
	if errors.Is(why, errOvertaken) {
		// One of our steps may have followed the watchdog's last step.
		if err := g.restore(context.WithoutCancel(ctx), cp); err != nil {
			return err
		}
		return fault.New(fault.Transient, "the watchdog reverted the change for %s", cp.Object)
	}
	var bad *badProbe
	final := errors.As(why, &bad) || fault.Is(why, fault.NeedsOperator) || fault.Is(why, fault.Invalid)
	if err := g.giveUp(ctx, cp, why.Error(), final); err != nil {
		return err
	}
	if final {
		return fault.New(fault.NeedsOperator, "the change was reverted: %w", why)
	}
	return fault.New(fault.Transient, "the change was reverted: %w", why)
}

// giveUp restores the previous state and ends the armed change. It succeeds if
// the change has already ended.
func (g *Guard) giveUp(ctx context.Context, cp *checkpoint, reason string, final bool) error {
	err := g.revert(ctx, cp, reason, final)
	if errors.Is(err, errOvertaken) {
		return nil
	}
	return err
}

// revert works like giveUp, but returns errOvertaken if the change has already
// ended, perhaps because it was kept.
func (g *Guard) revert(ctx context.Context, cp *checkpoint, reason string, final bool) error {
	ctx = context.WithoutCancel(ctx) // a stopping agent leaves nothing half done
	err := g.locked(ctx, cp, func() error {
		if err := g.restore(ctx, cp); err != nil {
			return err
		}
		return g.end(cp, reason, final)
	})
	if err == nil {
		g.o.Log.Warn("The change of the host's network is reverted.", "object", cp.Object, "reason", reason)
	}
	return err
}

// end ends a change whose previous state is restored. On a full disk the outcome
// can only be recorded in the room of the checkpoint.
func (g *Guard) end(cp *checkpoint, reason string, final bool) error {
	failed := record(g.o.Dir, cp, false, reason, final)
	if err := g.remove(); err != nil {
		return err
	}
	if failed != nil {
		failed = record(g.o.Dir, cp, false, reason, final)
	}
	if failed != nil {
		g.o.Log.Error("The outcome of a reverted change cannot be recorded, so the change may be tried again.", "object", cp.Object, "error", failed)
	}
	return nil
}

// locked runs f under a lock, so that no other process ends the change
// meanwhile. If the change is no longer armed, it returns errOvertaken. A
// process that holds the lock longer than lockLimit hangs, so locked continues
// without the lock. So it does if the lock cannot be taken at all, e.g. on a full
// disk, because the host may be unreachable until the change is reverted.
func (g *Guard) locked(ctx context.Context, cp *checkpoint, f func() error) error {
	wait, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	lock, err := hostlock.Acquire(wait, g.lockPath("end"), "the host's network", nil)
	switch {
	case err == nil:
		defer func() { _ = lock.Release() }()
	case ctx.Err() != nil:
		return err
	default:
		g.o.Log.Warn("The lock of the host's network cannot be taken; continuing without it.", "error", err)
	}
	now, err := g.read()
	if err != nil {
		return err
	}
	if now == nil || now.ID != cp.ID {
		return errOvertaken
	}
	return f()
}

// restore restores the links and the kernel parameters of the checkpoint. It is
// idempotent and continues after failed steps.
func (g *Guard) restore(ctx context.Context, cp *checkpoint) error {
	var failed error
	for range rounds {
		o, err := g.o.Host.Observe(ctx)
		if err != nil {
			return fmt.Errorf("cannot revert the change for %s: %w", cp.Object, err)
		}
		steps := hostnet.Restore(cp.Namespace, cp.Before, o, cp.Touched)
		if len(steps) == 0 {
			g.restoreSysctls(cp)
			return nil
		}
		failed = nil
		for _, s := range steps {
			if err := failpoint.Hit(failpoint.NetRestoring); err != nil {
				return err
			}
			if err := g.o.Host.Apply(ctx, s); err != nil {
				failed = err
				g.o.Log.Warn("A step of the revert failed.", "error", err)
			}
		}
	}
	g.restoreSysctls(cp)
	if failed != nil {
		// Log the failure instead of retrying for ever, because a NIC may be
		// unplugged.
		g.o.Log.Error("The change of the host's network is not wholly reverted.", "object", cp.Object, "error", failed)
	}
	return nil
}

// savedSysctls are the per-link parameters that affect connectivity.
var savedSysctls = []string{
	"net/ipv6/conf/%s/accept_ra", "net/ipv6/conf/%s/disable_ipv6", "net/ipv6/conf/%s/forwarding",
	"net/ipv4/conf/%s/forwarding", "net/ipv4/conf/%s/arp_ignore", "net/ipv4/conf/%s/arp_announce",
}

func (g *Guard) sysctls(links []string) map[string]string {
	if g.o.Sysctls == nil {
		return nil
	}
	values := map[string]string{}
	for _, link := range links {
		for _, form := range savedSysctls {
			name := fmt.Sprintf(form, link)
			if value, err := g.o.Sysctls.Read(name); err == nil {
				values[name] = value
			}
		}
	}
	return values
}

func (g *Guard) restoreSysctls(cp *checkpoint) {
	if g.o.Sysctls == nil {
		return
	}
	for name, value := range cp.Sysctls {
		if now, err := g.o.Sysctls.Read(name); err != nil || now == value {
			continue // the link is gone, or the value is unchanged
		}
		if err := g.o.Sysctls.Set(name, value); err != nil {
			g.o.Log.Warn("A kernel parameter cannot be reset.", "name", name, "error", err)
		}
	}
}
