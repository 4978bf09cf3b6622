package networkprovisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet/firewall"
	"hostler/internal/fault"
)

// delays are the delays between attempts at a network whose steps failed.
var delays = reconcile.Backoff{Base: time.Second, Max: time.Minute}

// finish stores the results of the pass and returns the time of the next retry.
// all is an error that affects all networks.
func (w *Worker) finish(life context.Context, t *turn, links map[string][]string, all error) (time.Time, error) {
	if life.Err() != nil {
		return time.Time{}, nil
	}
	// Store known results even while the agent stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(life), 10*time.Second)
	defer cancel()
	var next time.Time
	var writes []state.Write
	findings := w.findings(ctx, t, all)
	for i, n := range t.d.Networks {
		p := t.p.Networks[i]
		unmade := never(n, t.o) && !w.Tools.Have(false) // missing programs do not concern it
		if p.Gone && (all == nil || unmade) && t.errs[n.UID] == nil {
			writes = append(writes, state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: n.Name}, UID: n.UID, Revision: state.AnyRevision, Delete: true})
			t.addEvent(n, state.LevelInfo, "Deleted", deleted(p))
			delete(w.failed, n.UID)
			continue
		}
		err := errors.Join(all, t.errs[n.UID])
		if err == nil && len(p.Links) > 0 && !w.awaitsRetry(t, i) {
			err = fault.New(fault.Transient, "cannot keep bridge %s: %s repeatedly", p.Is.Bridge, p.Links[0])
		}
		f := w.failed[n.UID]
		if err == nil && w.awaitsRetry(t, i) {
			err = f.err
		} else if err != nil {
			f = failure{count: f.count + 1, generation: n.Generation, err: err}
			f.next = t.now.Add(delays.Next(f.count, nil))
			w.failed[n.UID] = f
		} else {
			delete(w.failed, n.UID)
		}
		if err != nil && all == nil && (next.IsZero() || f.next.Before(next)) {
			next = f.next
		}
		s := assess(n, p, err, f, findings[i], t.now)
		w.shown["network "+n.Name] = troubles(n, s)
		t.story(n, s, links[n.UID], err)
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

// story records the events of a pass for a network.
func (t *turn) story(n Network, s spec.NetworkStatus, links []string, err error) {
	was, is := n.Status.Applied, s.Applied
	switch {
	case err != nil && n.Status.Message != s.Message:
		t.addEvent(n, state.LevelWarn, "Failed", err.Error())
	case err != nil:
	case s.State == statePending && s.Message != "":
		if n.Status.Message != s.Message {
			t.addEvent(n, state.LevelInfo, "Waiting", s.Message)
		}
	case was == nil && is != nil:
		t.addEvent(n, state.LevelInfo, "Created", summary(*is))
	case was != nil && is != nil && len(changes(*was, *is)) > 0:
		t.addEvent(n, state.LevelInfo, "Updated", "changed "+fieldsOf(changes(*was, *is)))
	case len(links) > 0 && n.Life == state.Alive && was != nil: // a network never completed is not repaired
		t.addEvent(n, state.LevelWarn, "Repaired", strings.Join(links, "; "))
	}
}

func fieldsOf(changes []Change) string {
	var names []string
	for _, c := range changes {
		names = append(names, c.Field)
	}
	return strings.Join(names, ", ")
}

// findings returns the foreign chains that block declared flows, by network.
// Each pass looks for them; a changed nftables table wakes the worker.
func (w *Worker) findings(ctx context.Context, t *turn, failed error) map[int][]firewall.Finding {
	if failed != nil || len(t.p.Rules.Networks) == 0 {
		return nil
	}
	found, err := w.Firewall.Findings(ctx, t.p.Rules)
	if err != nil {
		w.Logger.Warn("Foreign tables cannot be read.", "error", err)
		return nil
	}
	at := map[string]int{}
	for i, n := range t.d.Networks {
		at[n.UID] = i
	}
	all := map[int][]firewall.Finding{}
	for _, f := range found {
		if i, ok := at[f.Owner]; ok {
			all[i] = append(all[i], f)
		}
	}
	return all
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

// troubles returns the notice about a network's problems, or "".
func troubles(n Network, s spec.NetworkStatus) string {
	var texts []string
	for _, c := range s.Conditions {
		if !c.Status && c.Reason != reasonWaiting {
			texts = append(texts, c.Message)
		}
	}
	if s.State == stateError && !slices.Contains(texts, s.Message) {
		texts = append(texts, s.Message)
	}
	if len(texts) == 0 {
		return ""
	}
	return "network/" + n.Name + ": " + strings.Join(texts, "; ")
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
