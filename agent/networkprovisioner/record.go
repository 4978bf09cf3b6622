package networkprovisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// delays are the delays between attempts at a network whose steps failed.
var delays = reconcile.Backoff{Base: time.Second, Max: time.Minute}

// finish stores the results of the pass and returns the time of the next retry.
// all is an error that affects all networks.
func (w *Worker) finish(life context.Context, t *turn, all error) (time.Time, error) {
	if life.Err() != nil {
		return time.Time{}, nil
	}
	// Store known results even while the agent stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(life), 10*time.Second)
	defer cancel()
	var next time.Time
	var writes []state.Write
	for i, n := range t.d.Networks {
		p := t.p.Networks[i]
		p.Notes = slices.Concat(p.Notes, t.notes[n.UID])
		if t.gone[n.UID] {
			writes = append(writes, state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: n.Name}, UID: n.UID, Revision: state.AnyRevision, Delete: true})
			t.addEvent(n, state.LevelInfo, "Deleted", deleted(p))
			delete(w.failed, n.UID)
			continue
		}
		f, err := w.judge(t, n, p, errors.Join(all, t.errs[n.UID]))
		if err != nil && all == nil && (next.IsZero() || f.next.Before(next)) {
			next = f.next
		}
		s := assess(n, p, err, f, t.now)
		w.shown["network "+n.Name] = troubles(n, s)
		t.story(n, s, t.links[n.UID], err)
		if !equal(n.Status, s) {
			writes = append(writes, statusWrite(n, s))
		}
	}
	w.show(t)
	w.troubled(t, all)
	if all != nil {
		next = w.trouble.next
	}
	if err := w.write(ctx, writes); err != nil {
		return next, err
	}
	if len(t.events) > 0 {
		if err := w.Store.Record(ctx, t.events...); err != nil {
			w.Logger.Warn("Events cannot be recorded.", "error", err)
		}
	}
	return next, nil
}

// judge returns the failure of a network after a pass, or one whose retry is
// not due.
func (w *Worker) judge(t *turn, n Network, p Planned, err error) (failure, error) {
	delayed := w.awaitsRetry(n, t.now)
	if err == nil && len(p.Links) > 0 && !delayed {
		err = fault.New(fault.Transient, "cannot keep bridge %s: %s repeatedly", p.Is.Bridge, p.Links[0])
	}
	f := w.failed[n.UID]
	switch {
	case err == nil && delayed:
		err = f.err
	case err != nil:
		f = failure{count: f.count + 1, generation: n.Generation, err: err}
		f.next = t.now.Add(delays.Next(f.count, nil))
		w.failed[n.UID] = f
	default:
		delete(w.failed, n.UID)
	}
	return f, err
}

// troubled records a failure that affects all networks.
func (w *Worker) troubled(t *turn, err error) {
	if err == nil {
		w.trouble = failure{}
		return
	}
	count := w.trouble.count + 1
	w.trouble = failure{count: count, generation: generations(t.d), next: t.now.Add(delays.Next(count, nil)), err: err}
}

// generations changes with any declared change, so that a retry follows
// immediately.
func generations(d Desired) int64 {
	sum := int64(len(d.Networks))
	for _, n := range d.Networks {
		sum += n.Generation
	}
	return sum
}

// drift records an event on every active network.
func (w *Worker) drift(t *turn, text string) {
	for i, n := range t.d.Networks {
		if t.p.Networks[i].On {
			t.addEvent(n, state.LevelWarn, "Repaired", text)
		}
	}
}

func (t *turn) addEvent(n Network, level, reason, message string) {
	t.events = append(t.events, state.Event{
		Time: t.now, Object: state.ID{Kind: spec.KindNetwork, Name: n.Name}, UID: n.UID, Level: level, Reason: reason, Message: message,
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

func statusWrite(n Network, s spec.NetworkStatus) state.Write {
	return state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: n.Name}, UID: n.UID, Revision: state.AnyRevision, Status: spec.Encode(s)}
}

func equal(a, b spec.NetworkStatus) bool { return string(spec.Encode(a)) == string(spec.Encode(b)) }

// write makes independent writes. It ignores objects that no longer exist.
func (w *Worker) write(ctx context.Context, writes []state.Write) error {
	if len(writes) == 0 {
		return nil
	}
	results, err := w.Store.Write(ctx, state.Each, writes...)
	if err != nil {
		return fmt.Errorf("cannot write the networks' statuses: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range results {
		if r.Err == nil && !writes[i].Delete {
			w.wrote[writes[i].Name] = r.Object.Revision
		}
		if r.Err != nil && !fault.Is(r.Err, fault.NotFound) && !fault.Is(r.Err, fault.Conflict) {
			return fmt.Errorf("cannot write the status of network/%s: %w", writes[i].Name, r.Err)
		}
	}
	return nil
}
