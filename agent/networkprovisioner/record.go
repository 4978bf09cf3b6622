package networkprovisioner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// delays holds the delays between attempts at a network's operations that
// failed.
var delays = reconcile.Backoff{Base: time.Second, Max: time.Minute}

// allNetworks is the key of a failure that affects all networks.
const allNetworks = ""

// finish stores the results of the pass and returns the time of the next retry.
// all is the error that affects all networks, or nil.
func (w *Worker) finish(life context.Context, t *turn, all error) (time.Time, error) {
	if life.Err() != nil {
		return time.Time{}, nil
	}
	// Store the results even if the agent is stopping.
	ctx, cancel := reconcile.Outlasting(life)
	defer cancel()
	var next time.Time
	var writes reconcile.Batch
	for i, n := range t.d.Networks {
		p := t.p.Networks[i]
		p.Notes = slices.Concat(p.Notes, t.notes[n.UID])
		if t.gone[n.UID] {
			writes.Remove(n.id(), n.UID)
			t.addEvent(n, state.LevelInfo, "Deleted", deleted(p))
			delete(w.failed, n.UID)
			continue
		}
		f := w.judge(t, n, p, errors.Join(all, t.errs[n.UID]))
		if f.Err != nil && all == nil {
			next = reconcile.Earliest(next, *f.NextRetry)
		}
		s := assess(n, p, f, t.now)
		w.shown["network "+n.Name] = troubles(n, s)
		t.story(n, s, t.links[n.UID], f.Err)
		writes.Status(n.id(), n.UID, n.Status, s)
	}
	w.show(t)
	if all == nil {
		delete(w.failed, allNetworks)
	} else {
		next = *w.failed.Add(allNetworks, generations(t.d), all, t.now, delays.After).NextRetry
	}
	if err := w.Write(ctx, writes); err != nil {
		return next, err
	}
	w.Record(ctx, t.events...)
	return next, nil
}

// judge returns the failure of a network after a pass. If the network's retry
// is not due yet, judge returns its earlier failure. Without a failure it
// returns the zero Failure.
func (w *Worker) judge(t *turn, n Network, p Planned, err error) reconcile.Failure {
	delayed := w.awaitsRetry(n, t.now)
	switch {
	case err != nil:
	case delayed:
		return w.failed[n.UID]
	case len(p.Links) > 0:
		err = fault.New(fault.Transient, "cannot keep bridge %s: %s repeatedly", p.Is.Bridge, p.Links[0])
	default:
		delete(w.failed, n.UID)
		return reconcile.Failure{}
	}
	return w.failed.Add(n.UID, n.Generation, err, t.now, delays.After)
}

// generations returns a number that changes whenever a declared network
// changes. After a change, a failure that affects all networks is then retried
// at once.
func generations(d Desired) int64 {
	sum := int64(len(d.Networks))
	for _, n := range d.Networks {
		sum += n.Generation
	}
	return sum
}

// drift adds an event for every network that is on the host.
func (w *Worker) drift(t *turn, text string) {
	for i, n := range t.d.Networks {
		if t.p.Networks[i].On {
			t.addEvent(n, state.LevelWarn, "Repaired", text)
		}
	}
}

func (t *turn) addEvent(n Network, level, reason, message string) {
	t.events = append(t.events, state.Event{
		Time: t.now, Object: n.id(), UID: n.UID, Level: level, Reason: reason, Message: message,
	})
}

// show updates the notices in the host's status.
func (w *Worker) show(t *turn) {
	now := w.shown
	for _, bridge := range t.p.Unknown {
		now["bridge "+bridge] = unknownBridge(t.o, bridge)
	}
	now["name servers"] = unresolved(t.d, t.p, t.o.Resolvers)
	for name := range maps.Keys(w.notices) {
		if now[name] == "" {
			w.Notice(name, "")
		}
	}
	for name, text := range now {
		if text != "" {
			w.Notice(name, text)
		}
	}
	w.notices, w.shown = now, map[string]string{}
}
