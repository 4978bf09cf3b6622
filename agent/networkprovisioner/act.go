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

// rounds limits the observations of a pass: the kernel reacts to a change with
// changes of its own.
const rounds = 4

// turn holds an observation, its plan, and the results of the pass.
type turn struct {
	d     Desired
	o     Observed
	p     Plan
	now   time.Time
	round int
	// errs are the errors, by the network's uid, links the steps taken on the
	// network's links, notes the features that cannot work.
	errs         map[string]error
	links, notes map[string][]string
	gone         map[string]bool // the networks whose records are to be deleted
	installed    bool            // the programs have been asked for
	noDHCP       error           // why the programs for DHCP are missing
	events       []state.Event
}

// converge observes, plans and acts until no step on links is due, and returns
// the time of the next retry.
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
		if until := w.failed.Until(allNetworks, generations(t.d), t.now); !until.IsZero() {
			return until, nil
		}
		again, err := w.act(ctx, t)
		if again && ctx.Err() == nil {
			continue
		}
		if err != nil && len(t.d.Networks) == 0 && t.o.Left == nil {
			w.Logger.Debug("Cannot check for rules of an earlier agent.", "error", err)
			err, w.idle = nil, len(t.p.Unknown) == 0
		}
		return w.finish(ctx, t, err)
	}
}

// look reads the records and the host and makes the plan. It makes an empty
// plan without observing the host if no network is declared and nothing of ours
// is left on the host.
func (w *Worker) look(ctx context.Context, t *turn) error {
	objects, _, err := w.Store.List(ctx, kinds()...)
	if err != nil {
		return fmt.Errorf("cannot read the declared networks: %w", err)
	}
	if err := reconcile.Configure(objects, func(r spec.HostRecord) { w.policy = ConfigOf(r) }); err != nil {
		return err
	}
	t.now, t.o, t.p = w.Now(), Observed{}, Plan{}
	if t.d, err = Decode(objects); err != nil {
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

// act carries out the plan's operations in order. It stops when the host must
// be observed again, and at a failure that affects all networks. A failed
// operation of a network prevents the network's further operations.
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
	w.idle = len(t.d.Networks)+len(t.p.Unknown) == 0
	w.listen(t)
	return false, nil
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
