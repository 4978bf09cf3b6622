package guard

import (
	"context"
	"time"

	"hostler/internal/fault"
)

// Armed describes the armed change for the API and the status.
type Armed struct {
	Object string
	Phase  Phase
	// Left is the time until the change is undone.
	Left  time.Duration
	Since time.Time
	// Watched means that the watchdog runs.
	Watched bool
}

// Armed returns the armed change, or false.
func (g *Guard) Armed() (Armed, bool) {
	cp, err := g.read()
	if err != nil || cp == nil {
		return Armed{}, false
	}
	return Armed{Object: cp.Object, Phase: cp.Phase, Left: cp.left(), Since: cp.Made, Watched: g.watched(cp)}, true
}

// Confirm keeps the change that awaits confirmation, and returns its object.
// The error is fault.NotFound if no change is armed, and fault.Conflict while
// the change is being made.
func (g *Guard) Confirm(ctx context.Context) (object string, err error) {
	cp, err := g.read()
	switch {
	case err != nil:
		return "", err
	case cp == nil:
		return "", fault.New(fault.NotFound, "no change of the host's network waits to be confirmed")
	case cp.Phase != Confirming:
		return "", fault.New(fault.Conflict, "the change for %s is still under way; confirm it when it waits for confirmation", cp.Object)
	}
	if err := g.commit(ctx, cp); err != nil {
		return "", err
	}
	g.ended()
	return cp.Object, nil
}

// Revert undoes the armed change immediately, and returns its object. The error
// is fault.NotFound if no change is armed.
func (g *Guard) Revert(ctx context.Context) (object string, err error) {
	cp, err := g.read()
	switch {
	case err != nil:
		return "", err
	case cp == nil:
		return "", fault.New(fault.NotFound, "no change of the host's network is armed, so nothing can be reverted")
	}
	if err := g.giveUp(ctx, cp, "an operator reverted it", true); err != nil {
		return "", err
	}
	g.ended()
	return cp.Object, nil
}

// Recover ends an armed change of an agent that died. It undoes a change that
// was being made; a change that awaits confirmation stays armed. After a reboot
// the host's own configuration applies; Recover restores the checkpoint only if
// the host is unreachable. Call it before the first Run.
func (g *Guard) Recover(ctx context.Context) error {
	cp, err := g.read()
	if err != nil || cp == nil {
		return err
	}
	defer g.ended() // workers that look before it ends wait for it
	if cp.Boot != bootID() {
		return g.afterBoot(ctx, cp)
	}
	if cp.Phase == Changing {
		return g.giveUp(ctx, cp, "the agent ended during the change", false)
	}
	return nil
}

// bootTimeout is the time for the host's own configuration to take effect
// after a boot.
const bootTimeout = 30 * time.Second

func (g *Guard) afterBoot(ctx context.Context, cp *checkpoint) error {
	wait, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	reason := "the host was restarted before it was confirmed"
	if g.probe(wait, cp.Targets) != nil {
		return g.giveUp(ctx, cp, reason, true)
	}
	return g.locked(ctx, cp, func() error { return g.end(cp, reason, true) })
}

// Keep watches over a change that awaits confirmation, until ctx ends. It
// restarts a watchdog that died, does the watchdog's work if the restart fails,
// and signals the end of a change; see Ends.
func (g *Guard) Keep(ctx context.Context) error {
	last, due := "", time.After(0)
	var pause pause
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.armed:
		case <-due:
		}
		due = time.After(look)
		cp, err := g.read()
		if err != nil {
			return err
		}
		if cp == nil {
			if last != "" {
				g.ended()
			}
			last, due = "", nil // only this process arms a change, which sends a signal
			continue
		}
		last = cp.ID
		if cp.Phase != Confirming || g.watched(cp) && cp.left() > -lockLimit || !pause.over() {
			continue
		}
		if cp.left() > 0 {
			g.o.Log.Warn("The watchdog died and is started again.", "object", cp.Object)
			if err = g.startWatchdog(ctx, cp); err == nil {
				continue
			}
			g.o.Log.Error("The watchdog does not start again: the change is reverted.", "error", err)
		}
		if err := g.giveUp(ctx, cp, cp.overdue(g.o.Limit), true); err != nil {
			pause.extend()
			g.o.Log.Error("The host's network cannot be reverted yet.", "object", cp.Object, "error", err)
		}
	}
}
