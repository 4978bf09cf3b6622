package networkprovisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/sysctl"
)

// rounds bounds how often a pass observes the host and changes links. It
// observes again because the kernel reacts to a change with further changes.
const rounds = 4

// turn holds the last observation of a pass, its plan, and the results of the
// pass.
type turn struct {
	d     Desired
	o     Observed
	p     Plan
	now   time.Time
	round int
	// These maps are by the network's uid. errs holds the failures, links the
	// steps carried out on the network's links, notes the features that cannot
	// work.
	errs         map[string]error
	links, notes map[string][]string
	gone         map[string]bool // the networks whose records finish() deletes, by uid
	installed    bool            // the pass has tried to install the programs
	noDHCP       error           // the reason why the programs for DHCP are missing
	events       []state.Event
	// paused is true if a DHCP client may still have to be resumed. resume is
	// the time of the next attempt, or zero.
	paused bool
	resume time.Time
	// aged is the time at which a pair will have been without a guest for too
	// long, or zero.
	aged time.Time
}

// next returns the earliest time at which a pass is due, or zero.
func (t *turn) next(retry time.Time) time.Time {
	return reconcile.Earliest(retry, t.resume, t.aged)
}

// converge observes, plans and acts until no step on links is due. It returns
// the time of the next retry, or zero if there is none.
func (w *Worker) converge(ctx context.Context) (time.Time, error) {
	t := &turn{errs: map[string]error{}, links: map[string][]string{}, notes: map[string][]string{}, gone: map[string]bool{}}
	for t.round = 1; ; t.round++ {
		if err := w.look(ctx, t); err != nil {
			return time.Time{}, err
		}
		if w.idle {
			w.show(t)
			return time.Time{}, nil
		}
		w.resume(ctx, t)
		if until := w.failed.Until(allNetworks, generations(t.d), t.now); !until.IsZero() {
			return t.next(until), nil
		}
		again, err := w.act(ctx, t)
		if again && ctx.Err() == nil {
			continue
		}
		if err != nil && len(t.d.Networks) == 0 && t.o.Left == nil {
			w.Logger.Debug("Cannot check for rules of an earlier agent.", "error", err)
			err, w.idle = nil, len(t.p.Unknown) == 0 && !t.paused
		}
		next, err := w.finish(ctx, t, err)
		return t.next(next), err
	}
}

// look reads the records and the host and makes the plan. If no network is
// declared and nothing of ours is left on the host, it does not observe the
// host and makes an empty plan.
func (w *Worker) look(ctx context.Context, t *turn) error {
	objects, _, err := w.Store.List(ctx, kinds()...)
	if err != nil {
		return fmt.Errorf("cannot read the declared networks: %w", err)
	}
	if err := reconcile.Configure(objects, func(r spec.HostRecord) { w.policy = ConfigOf(r) }); err != nil {
		return err
	}
	t.now, t.o, t.p = w.Now(), Observed{}, Plan{}
	if t.d, err = w.decoder.desired(objects); err != nil {
		return err
	}
	if w.idle = w.idle && len(t.d.Networks) == 0; w.idle {
		return nil
	}
	eyes := w.Eyes
	eyes.tools, eyes.parameters, eyes.left = w.Tools, w.Parameters, w.last
	if t.o, err = eyes.Observe(ctx, t.d); err != nil {
		return err
	}
	t.o.Abandoned, t.aged = w.pairs.see(t.o.Host.Links, t.now)
	if t.o.TablesErr != nil {
		w.Logger.Warn("Foreign tables cannot be read.", "error", t.o.TablesErr)
	}
	policy := w.policy
	policy.Now, policy.Delayed = t.now, map[string]bool{}
	for _, n := range t.d.Networks {
		policy.Delayed[n.UID] = t.errs[n.UID] != nil || w.awaitsRetry(n, t.now)
	}
	t.p = Make(t.d, t.o, policy)
	return nil
}

// act carries out the plan's operations in order. again is true if the pass
// must observe the host before it continues. err is an error that affects all
// networks. If an operation of a network fails, act leaves out the network's
// other operations.
func (w *Worker) act(ctx context.Context, t *turn) (again bool, err error) {
	if w.last == nil {
		w.last = map[string]kept{}
	}
	began := w.Now()
	for _, op := range t.p.Operations {
		onLinks := op.Op == opLinks || op.Op == opStray
		switch {
		case again && !onLinks:
			return true, nil
		case onLinks && t.round > rounds, op.Op == opInstall && t.installed, t.errs[op.UID] != nil:
			continue
		}
		again = onLinks || op.Op == opInstall
		err := op.Err
		if err == nil {
			err = w.carryOut(ctx, t, op)
		}
		switch {
		case err == nil:
		case op.Optional:
			w.Logger.Warn("An optional operation failed.", "operation", optional[op.Op], "bridge", bridgeOf(op), "uid", op.Server, "error", err)
		case op.UID == "":
			w.Count("rules", w.Now().Sub(began), err)
			return false, err
		default:
			t.errs[op.UID] = err
		}
	}
	if again {
		return true, nil
	}
	w.Count("rules", w.Now().Sub(began), nil)
	w.idle = len(t.d.Networks)+len(t.p.Unknown) == 0 && !t.paused
	w.listen(t)
	return false, nil
}

// listen sets the parameters and servers that pollDrift() checks.
func (w *Worker) listen(t *turn) {
	var servers []Server
	for i, n := range t.d.Networks {
		if t.p.Networks[i].DHCP != nil && t.errs[n.UID] == nil {
			servers = append(servers, w.Eyes.Server(n.UID))
		}
	}
	w.poll(slices.Concat(t.p.Routers, t.p.Parameters), servers)
}

// poll makes pollDrift() check these parameters and servers from now on.
// Without any, e.g. on a host without networks, pollDrift() stops its ticker,
// because each tick would wake several threads of an idle agent.
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
