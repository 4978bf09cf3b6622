package guard

import (
	"context"
	"fmt"
	"time"

	"hostler/internal/fault"
	"hostler/internal/hostlock"
)

// Watch is the watchdog: it waits beside the agent until the armed change has
// come to its end, and at the deadline puts back what was there. It returns
// when nothing is armed any more; where another watchdog is at work for the
// same change it ends with an error.
func Watch(ctx context.Context, o Options) error {
	g := New(o)
	cp, err := g.read()
	if err != nil || cp == nil {
		return err
	}
	// The watchdog of the change before may be just about to end.
	wait, cancel := context.WithTimeout(ctx, watchdogLimit)
	defer cancel()
	lock, err := hostlock.Acquire(wait, g.lockPath("watchdog"), cp.ID, nil)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := g.read()
		switch {
		case err != nil:
			return err
		case now == nil || now.ID != cp.ID || now.Boot != bootID():
			return nil
		case now.left() <= 0:
			if err := g.giveUp(ctx, now, now.overdue(g.o.Limit), now.Phase == Confirming); err != nil {
				g.o.Log.Error("The host's network cannot be put back yet.", "error", err)
			}
		}
	}
}

// overdue is why the watchdog put things back.
func (c *Checkpoint) overdue(limit time.Duration) string {
	if c.Phase == Confirming {
		return fmt.Sprintf("nobody confirmed it within %s", c.Confirm)
	}
	return fmt.Sprintf("the agent did not finish it within %s", limit)
}

// startWatchdog starts the watchdog and waits until it is at work.
func (g *Guard) startWatchdog(ctx context.Context, cp *Checkpoint) error {
	if g.watched(cp) {
		return nil
	}
	if err := g.o.Start(ctx); err != nil {
		return err
	}
	for end := time.Now().Add(watchdogLimit); time.Now().Before(end); {
		if g.watched(cp) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look / 5):
		}
	}
	return fault.New(fault.Transient, "it is not at work after %s", watchdogLimit)
}

// watched says that a watchdog is at work for this change.
func (g *Guard) watched(cp *Checkpoint) bool {
	holder, held := hostlock.Read(g.lockPath("watchdog"))
	return held && holder.Purpose == cp.ID
}

// keepWatchdog starts the watchdog anew when it dies while the change is made.
// Where that fails the change is given up at once.
func (g *Guard) keepWatchdog(ctx context.Context, cp *Checkpoint, stop context.CancelCauseFunc) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if g.watched(cp) || g.still(cp) != nil || ctx.Err() != nil {
			continue
		}
		g.o.Log.Warn("The watchdog died and is started again.", "object", cp.Object)
		if err := g.startWatchdog(ctx, cp); err != nil && ctx.Err() == nil {
			stop(fault.New(fault.Transient, "the watchdog died and does not start again: %w", err))
			return
		}
	}
}
