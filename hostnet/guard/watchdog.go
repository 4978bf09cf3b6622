package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler/internal/fault"
	"hostler/internal/hostlock"
)

// Watch is the watchdog. It waits beside the agent until the armed change has
// ended, and restores the previous state at the deadline. It returns when no
// change is armed, and reports whether it reverted the change. If another watchdog
// already serves the same change, it returns an error.
func Watch(ctx context.Context, o Options) (reverted bool, err error) {
	g := New(o)
	cp, err := g.read()
	if err != nil || cp == nil {
		return false, err
	}
	// The watchdog of the previous change may be about to end.
	wait, cancel := context.WithTimeout(ctx, watchdogLimit)
	defer cancel()
	lock, err := hostlock.Acquire(wait, g.lockPath("watchdog"), cp.ID, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = lock.Release() }()
	tick := time.NewTicker(look)
	defer tick.Stop()
	var pause pause
	for {
		select {
		case <-ctx.Done():
			return reverted, nil
		case <-tick.C:
		}
		now, err := g.read()
		switch {
		case err != nil:
			return reverted, err
		case now == nil || now.ID != cp.ID || now.Boot != bootID():
			return reverted, nil
		case now.left() <= 0 && pause.over():
			err := g.revert(ctx, now, now.overdue(g.o.Limit), now.Phase == Confirming)
			if err != nil && !errors.Is(err, errOvertaken) {
				pause.extend()
				g.o.Log.Error("The host's network cannot be reverted yet.", "object", now.Object, "error", err)
			}
			reverted = err == nil
		}
	}
}

// longestPause is the longest pause between two attempts to revert a change.
const longestPause = 30 * time.Second

// pause is the pause after a failed revert, which doubles with each failure. The zero
// value is over.
type pause struct {
	until  time.Time
	length time.Duration
}

func (p *pause) over() bool { return !time.Now().Before(p.until) }

func (p *pause) extend() {
	p.length = min(max(2*p.length, look), longestPause)
	p.until = time.Now().Add(p.length)
}

// overdue returns the reason for the watchdog's restore.
func (c *checkpoint) overdue(limit time.Duration) string {
	if c.Phase == Confirming {
		return fmt.Sprintf("it was not confirmed within %s", c.Confirm)
	}
	return fmt.Sprintf("the agent did not finish it within %s", limit)
}

// startWatchdog starts the watchdog and waits until it runs.
func (g *Guard) startWatchdog(ctx context.Context, cp *checkpoint) error {
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
	return fault.New(fault.Transient, "it does not run after %s", watchdogLimit)
}

// watched reports whether a watchdog runs for this change.
func (g *Guard) watched(cp *checkpoint) bool {
	holder, held := hostlock.Read(g.lockPath("watchdog"))
	return held && holder.Purpose == cp.ID
}

// keepWatchdog restarts the watchdog if it dies while the change is made. If
// the restart fails, it calls stop, so that Run undoes the change immediately.
func (g *Guard) keepWatchdog(ctx context.Context, cp *checkpoint, stop context.CancelCauseFunc) {
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
