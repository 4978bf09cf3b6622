package networkprovisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/sysctl"
)

// failure records the failed steps of a network.
type failure struct {
	count      int
	generation int64
	next       time.Time
	err        error
}

// rounds limits the observations and actions of a pass: the kernel reacts to a
// change with changes of its own.
const rounds = 4

// The owners of our kernel parameters.
const (
	ownerNetworks = "networks"
	ownerRouters  = "networks-routers"
)

// turn is an observation and its results.
type turn struct {
	d      Desired
	o      Observed
	p      Plan
	errs   map[string]error // by the network's uid, for the whole pass
	noDHCP error            // why the programs for DHCP are missing
	events []state.Event
	now    time.Time
}

// converge observes, plans and acts until no step is due, and returns the time
// of the next retry.
func (w *Worker) converge(ctx context.Context) (time.Time, error) {
	links := map[string][]string{} // steps taken on each network's links in this pass
	errs := map[string]error{}
	var noDHCP error
	for round := 1; ; round++ {
		d, o, p, err := w.look(ctx)
		if err != nil {
			return time.Time{}, err
		}
		t := &turn{d: d, o: o, p: p, errs: errs, noDHCP: noDHCP, now: w.Now()}
		if len(d.Networks) == 0 && len(p.Strays)+len(p.Orphans) == 0 && w.idle(ctx, p) {
			w.show(t)
			return time.Time{}, nil
		}
		if w.trouble.err != nil && w.trouble.generation == generations(d) && t.now.Before(w.trouble.next) {
			return w.trouble.next, nil
		}
		if err := w.tools(ctx, t); err != nil {
			return w.finish(ctx, t, links, err)
		}
		noDHCP = t.noDHCP
		// Store assigned addresses before they are used.
		if err := w.promise(ctx, t); err != nil {
			return time.Time{}, err
		}
		if round <= rounds && w.due(t) > 0 {
			w.links(ctx, t, links)
			if ctx.Err() == nil {
				continue
			}
		}
		return w.finish(ctx, t, links, w.applyServices(ctx, t))
	}
}

// idle reports whether there is nothing of ours to maintain or remove. On the
// first pass it also removes rules and parameters that an earlier agent left.
func (w *Worker) idle(ctx context.Context, p Plan) bool {
	if w.last != nil {
		left := w.last.unknown && len(p.Unknown) == 0 && w.Tools.Have(false) // rules of bridges that no longer exist
		return w.last.rules == "" && len(w.last.settings) == 0 && !left
	}
	w.last = &appliedState{dhcp: map[string]string{}, unknown: len(p.Unknown) > 0}
	if !w.Tools.Have(false) || w.last.unknown {
		return true
	}
	if err := w.applyServices(ctx, &turn{p: p}); err != nil {
		w.Logger.Debug("Cannot check for rules of an earlier agent.", "error", err)
	}
	return true
}

// tools installs the programs that are needed now. An error affects all
// networks. If only the programs for DHCP are missing, it sets t.noDHCP, and
// networks without DHCP continue.
func (w *Worker) tools(ctx context.Context, t *turn) error {
	needed, dhcp := false, false
	for i, n := range t.d.Networks {
		needed = needed || t.p.Networks[i].On || !never(n, t.o)
		dhcp = dhcp || t.p.Networks[i].DHCP != nil && !t.o.Serving[n.UID] && !w.awaitsRetry(t, i)
	}
	if !needed || t.noDHCP != nil || w.Tools.Have(dhcp) {
		return nil
	}
	err := w.Tools.Install(ctx, func(text string) {
		for _, n := range t.d.Networks {
			if n.Status.State != stateReady && n.Life == state.Alive {
				n.Status.State, n.Status.Message = statePending, text
				_, _ = w.Store.Write(ctx, state.Each, statusWrite(n, n.Status)) // informational only
			}
		}
	})
	if err != nil && w.Tools.Have(false) {
		t.noDHCP, err = err, nil
	}
	return err
}

// never reports whether nothing of the network has ever been on the host.
func never(n Network, o Observed) bool { return n.Status.Applied == nil && !made(n, o) }

// promise stores the assigned addresses in the networks' statuses.
func (w *Worker) promise(ctx context.Context, t *turn) error {
	var writes []state.Write
	for i := range t.d.Networks {
		n := &t.d.Networks[i]
		s := n.Status
		if n.Life == state.Alive && s.State == "" {
			s.State = statePending
		}
		s.Guests, s.NICSettings = t.p.Networks[i].Guests, encodeSettings(t.p.Networks[i])
		if !equal(n.Status, s) {
			n.Status = s
			writes = append(writes, statusWrite(*n, s))
		}
	}
	return w.write(ctx, writes)
}

// due returns the number of link steps to take now.
func (w *Worker) due(t *turn) int {
	n := len(t.p.Strays)
	for i, each := range t.d.Networks {
		if t.errs[each.UID] == nil && !w.awaitsRetry(t, i) {
			n += len(t.p.Networks[i].Links)
		}
	}
	return n
}

// awaitsRetry reports whether the network's steps failed recently and the retry
// is not due.
func (w *Worker) awaitsRetry(t *turn, i int) bool {
	f, ok := w.failed[t.d.Networks[i].UID]
	return ok && f.generation == t.d.Networks[i].Generation && t.now.Before(f.next)
}

// links carries out the link steps. Steps of a network run in order and stop at
// a failure.
func (w *Worker) links(ctx context.Context, t *turn, done map[string][]string) {
	for i, p := range t.p.Networks {
		n := t.d.Networks[i]
		if len(p.Links) == 0 || t.errs[n.UID] != nil || w.awaitsRetry(t, i) {
			continue
		}
		if removes(p.Links) && p.DHCP == nil {
			if err := w.Eyes.Server(n.UID).Remove(ctx); err != nil {
				t.errs[n.UID] = err
				continue
			}
		}
		began := w.Now()
		err := w.change(ctx, n, p)
		w.count("links", began, err)
		if err != nil {
			t.errs[n.UID] = err
			continue
		}
		for _, s := range p.Links {
			done[n.UID] = append(done[n.UID], s.String())
		}
	}
	for _, s := range t.p.Strays {
		if err := w.Links.Apply(ctx, s); err != nil {
			w.Logger.Warn("An undeclared bridge cannot be removed.", "bridge", s.Link, "error", err)
		}
	}
}

func removes(steps []hostnet.Step) bool {
	return slices.ContainsFunc(steps, func(s hostnet.Step) bool { return s.Op == hostnet.RemoveBridge })
}

// applyServices updates the firewall, the kernel parameters and DHCP. An error
// affects all networks.
func (w *Worker) applyServices(ctx context.Context, t *turn) error {
	began := w.Now()
	for _, uid := range t.p.Orphans {
		if err := w.Eyes.Server(uid).Remove(ctx); err != nil {
			w.Logger.Warn("The DHCP server of a removed network cannot be removed.", "uid", uid, "error", err)
		}
	}
	if err := w.recall(ctx, t); err != nil {
		return err
	}
	if err := w.keepRouters(t); err != nil {
		return err
	}
	last := w.last
	if last == nil {
		last = &appliedState{dhcp: map[string]string{}}
	}
	next := &appliedState{dhcp: map[string]string{}, unknown: len(t.p.Unknown) > 0, settings: t.p.Parameters, parameters: fmt.Sprint(t.p.Routers, t.p.Parameters)}
	if len(t.p.Rules.Networks) > 0 {
		next.rules = fmt.Sprint(t.p.Rules)
	}
	// Load the firewall before the host forwards, and stop forwarding before
	// removing the rules.
	steps := []func() error{
		func() error { return w.firewall(ctx, t, last.rules == next.rules) },
		func() error { return w.parameters(ctx, t, last.parameters == next.parameters) },
	}
	if len(t.p.Rules.Networks) == 0 {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			w.count("rules", began, err)
			return err
		}
	}
	for _, ends := range []bool{true, false} { // a new server may need the bridge of an ending server
		for i, n := range t.d.Networks {
			if (t.p.Networks[i].DHCP == nil) == ends && t.errs[n.UID] == nil && !w.awaitsRetry(t, i) {
				if err := w.serve(ctx, t, i, last, next); err != nil {
					t.errs[n.UID] = err
				}
			}
		}
	}
	w.persistBridges(ctx, t)
	w.count("rules", began, nil)
	w.last = next
	w.listen(t)
	return nil
}

func (w *Worker) firewall(ctx context.Context, t *turn, same bool) error {
	if len(t.p.Rules.Networks) == 0 && len(t.p.Unknown) > 0 {
		return nil // bridges whose records are lost still have guests
	}
	if len(t.p.Rules.Networks) == 0 && !w.Tools.Have(false) {
		return nil // tools has requested them if rules of ours may exist
	}
	changed, err := w.Firewall.Apply(ctx, t.p.Rules)
	if err == nil && changed && same && w.last != nil {
		w.drift(t, "another process changed the firewall; it is loaded again")
	}
	return err
}

// serve updates the DHCP server of a network.
func (w *Worker) serve(ctx context.Context, t *turn, i int, last, next *appliedState) error {
	n, p := t.d.Networks[i], t.p.Networks[i]
	if p.DHCP == nil {
		if !t.o.Served[n.UID] {
			return nil
		}
		defer w.waker.Signal() // a dying network may be complete now
		return w.Eyes.Server(n.UID).Remove(ctx)
	}
	if t.noDHCP != nil && !t.o.Serving[n.UID] {
		return t.noDHCP
	}
	next.dhcp[n.UID] = fmt.Sprint(*p.DHCP)
	started, err := w.Eyes.Server(n.UID).Ensure(ctx, *p.DHCP)
	if err == nil && started && last.dhcp[n.UID] == next.dhcp[n.UID] {
		t.addEvent(n, state.LevelWarn, "Repaired", "dnsmasq had ended and is started again")
	}
	return err
}

// listen sets the parameters and servers that pollDrift checks.
func (w *Worker) listen(t *turn) {
	var servers []Server
	for i, n := range t.d.Networks {
		if t.p.Networks[i].DHCP != nil && t.errs[n.UID] == nil {
			servers = append(servers, w.Eyes.Server(n.UID))
		}
	}
	w.poll(slices.Concat(t.p.Routers, t.p.Parameters), servers)
}

// poll makes pollDrift check these parameters and servers from now on. With
// neither, e.g. on a host without networks, pollDrift sleeps: each tick of an
// idle agent wakes several threads.
func (w *Worker) poll(settings []sysctl.Setting, servers []Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unchanged = nil; len(settings)+len(servers) == 0 {
		return
	}
	w.unchanged = func() bool {
		if well, _ := w.Parameters.Satisfied(settings); !well {
			return false
		}
		return !slices.ContainsFunc(servers, func(s Server) bool { return !s.Running() })
	}
	select {
	case w.polls <- struct{}{}:
	default:
	}
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

func (w *Worker) count(action string, began time.Time, err error) {
	if w.Metrics != nil {
		w.Metrics.Operation(action, w.Now().Sub(began), err)
	}
}
