package guard

import (
	"context"
	"time"

	"hostler/internal/fault"
)

// Armed is the change that waits for its end, as people are told of it.
type Armed struct {
	Object string
	Phase  Phase
	// Left until it is undone.
	Left  time.Duration
	Since time.Time
	// Watched: the watchdog is at work.
	Watched bool
}

// Armed returns the armed change; false without one.
func (g *Guard) Armed() (Armed, bool) {
	cp, err := g.read()
	if err != nil || cp == nil {
		return Armed{}, false
	}
	return Armed{Object: cp.Object, Phase: cp.Phase, Left: cp.left(), Since: cp.Made, Watched: g.watched(cp)}, true
}

// Confirm keeps the change that waits for it, and returns its object. Without
// one it is fault.NotFound, and fault.Conflict while the change is being made.
func (g *Guard) Confirm(ctx context.Context) (object string, err error) {
	cp, err := g.read()
	switch {
	case err != nil:
		return "", err
	case cp == nil:
		return "", fault.New(fault.NotFound, "no change of the host's network waits to be confirmed")
	case cp.Phase != Confirming:
		return "", fault.New(fault.Conflict, "the change for %s is still being made; confirm it when it waits for that", cp.Object)
	}
	if err := g.commit(ctx, cp); err != nil {
		return "", err
	}
	g.o.Changed()
	return cp.Object, nil
}

// Revert undoes the armed change at once, and returns its object; without one
// it is fault.NotFound.
func (g *Guard) Revert(ctx context.Context) (object string, err error) {
	cp, err := g.read()
	switch {
	case err != nil:
		return "", err
	case cp == nil:
		return "", fault.New(fault.NotFound, "no change of the host's network is armed: there is nothing to undo")
	}
	if err := g.giveUp(ctx, cp, "a person undid it", true); err != nil {
		return "", err
	}
	g.o.Changed()
	return cp.Object, nil
}

// Recover ends what an agent that died has left: a change that was being made
// is undone, one that waits to be confirmed goes on waiting. After the host was
// started anew the host's own configuration rules; what was there is put back
// only if the host cannot be reached by itself. It is called before the first
// Run.
func (g *Guard) Recover(ctx context.Context) error {
	cp, err := g.read()
	if err != nil || cp == nil {
		return err
	}
	if cp.Boot != bootID() {
		return g.afterBoot(ctx, cp)
	}
	if cp.Phase == Changing {
		return g.giveUp(ctx, cp, "the agent ended while it was made", false)
	}
	return nil
}

// bootPatience is how long the host's own configuration may take after a start.
const bootPatience = 30 * time.Second

func (g *Guard) afterBoot(ctx context.Context, cp *Checkpoint) error {
	wait, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	reason := "the host was started anew before it was confirmed"
	if g.probe(wait, cp.Targets) != nil {
		return g.giveUp(ctx, cp, reason, true)
	}
	return g.locked(ctx, cp, func() error {
		if err := record(g.o.Dir, cp, false, reason, true); err != nil {
			return err
		}
		return g.remove()
	})
}

// Keep looks after a change that waits to be confirmed, until ctx ends: it
// starts a watchdog that died anew, does the watchdog's work when that cannot
// be, and tells of the end.
func (g *Guard) Keep(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		cp, err := g.read()
		if err != nil {
			return err
		}
		if cp == nil {
			if last != "" {
				g.o.Changed()
			}
			last = ""
			continue
		}
		last = cp.ID
		if cp.Phase != Confirming || g.watched(cp) && cp.left() > -lockLimit {
			continue
		}
		if cp.left() > 0 {
			g.o.Log.Warn("The watchdog died and is started again.", "object", cp.Object)
			if err = g.startWatchdog(ctx, cp); err == nil {
				continue
			}
			g.o.Log.Error("The watchdog does not start again: the change is undone.", "error", err)
		}
		if err := g.giveUp(ctx, cp, cp.overdue(g.o.Limit), true); err != nil {
			g.o.Log.Error("The host's network cannot be put back yet.", "error", err)
		}
	}
}
