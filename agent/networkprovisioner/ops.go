package networkprovisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// optional names the optional operations in the log.
var optional = map[Op]string{
	opStray:  "remove an undeclared bridge",
	opOrphan: "remove the DHCP server of a removed network",
	opDrop:   "remove the boot configuration of a removed bridge",
}

func bridgeOf(op Operation) string {
	if op.Op == opStray {
		return op.Links[0].Link
	}
	return op.Boot.Name
}

// carryOut carries out an operation and records its result.
func (w *Worker) carryOut(ctx context.Context, t *turn, op Operation) error {
	switch op.Op {
	case opInstall:
		return w.install(ctx, t)
	case opPromise:
		return w.promise(ctx, t, op.Statuses)
	case opLinks:
		began := w.Now()
		err := w.change(ctx, op)
		w.Count("links", w.Now().Sub(began), err)
		for _, s := range op.Links {
			if err == nil {
				t.links[op.UID] = append(t.links[op.UID], s.String())
			}
		}
		return err
	case opStray:
		return w.Links.Apply(ctx, op.Links[0])
	case opOrphan:
		return w.Eyes.Server(op.Server).Remove(ctx)
	case opRelease:
		return w.release(ctx, t, op)
	case opParameters:
		return w.parameters(ctx, t, op)
	case opRules:
		return w.firewall(ctx, t, op)
	case opEndServer:
		defer w.Signal() // a dying network may be complete now
		delete(w.last, leftServer(op.Server))
		return w.Eyes.Server(op.Server).Remove(ctx)
	case opServe:
		return w.serve(ctx, t, op)
	case opPersist:
		if err := w.Eyes.Persister.Persist(ctx, op.Boot); err != nil {
			t.notes[op.UID] = append(t.notes[op.UID], err.Error())
			return nil
		}
		w.last[leftBoot(op.Boot.Name)] = kept{fmt.Sprint(op.Boot), func() bool { return w.Eyes.Persister.Holds(op.Boot) }}
	case opDrop:
		delete(w.last, leftBoot(op.Boot.Name))
		return w.Eyes.Persister.Drop(ctx, op.Boot.Name)
	case opForget:
		t.gone[op.UID] = true
	}
	return nil
}

// install installs the missing programs. An error affects all networks. If only
// the programs for DHCP are missing, it sets t.noDHCP, and networks without
// DHCP continue.
func (w *Worker) install(ctx context.Context, t *turn) error {
	t.installed = true
	err := w.Tools.Install(ctx, func(text string) {
		for _, n := range t.d.Networks {
			if n.Status.State != stateReady && n.Life == state.Alive {
				n.Status.State, n.Status.Message = statePending, text
				w.Progress(ctx, reconcile.StatusWrite(n.id(), n.UID, n.Status))
			}
		}
	})
	if err != nil && w.Tools.Have(false) {
		t.noDHCP, err = err, nil
	}
	return err
}

// promise stores the assigned addresses in the networks' statuses.
func (w *Worker) promise(ctx context.Context, t *turn, statuses map[string]spec.NetworkStatus) error {
	var writes reconcile.Batch
	for i := range t.d.Networks {
		n := &t.d.Networks[i]
		if s, differs := statuses[n.UID]; differs {
			n.Status = s
			writes.Status(n.id(), n.UID, nil, s)
		}
	}
	return w.Write(ctx, writes)
}

// awaitsRetry reports whether the network's operations failed recently and the
// retry is not due.
func (w *Worker) awaitsRetry(n Network, now time.Time) bool {
	return !w.failed.Until(n.UID, n.Generation, now).IsZero()
}

// change carries out the steps on a network's links in order, and stops at a
// failure. A change of the host's own network goes through the guard; it
// succeeds also if it awaits confirmation, because its steps are done.
func (w *Worker) change(ctx context.Context, op Operation) error {
	if op.EndServer {
		if err := w.Eyes.Server(op.UID).Remove(ctx); err != nil {
			return err
		}
	}
	if op.Change == nil {
		for _, s := range op.Links {
			if err := w.Links.Apply(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	if w.Guard == nil {
		return fault.New(fault.NeedsOperator, "cannot change the host's own network: this agent runs without a network guard")
	}
	if err := w.Guard.Run(ctx, *op.Change); !fault.Is(err, fault.NotReady) {
		return err
	}
	return nil
}

func (w *Worker) firewall(ctx context.Context, t *turn, op Operation) error {
	changed, err := w.Firewall.Apply(ctx, t.p.Rules)
	if err != nil {
		return err
	}
	if changed && op.Again {
		w.drift(t, "another process changed the firewall; it is loaded again")
	}
	w.last[leftRules] = kept{t.p.rules(), func() bool { return true }} // Tables tells
	return nil
}

func (w *Worker) parameters(ctx context.Context, t *turn, op Operation) error {
	var changed []string
	for _, own := range op.Settings {
		names, err := w.Parameters.Apply(ctx, own.Owner, own.Settings)
		if err != nil {
			return err
		}
		changed = append(changed, names...)
	}
	w.last[leftParameters] = kept{fmt.Sprint(op.Settings), func() bool {
		return !slices.ContainsFunc(op.Settings, func(own OwnSettings) bool { return !w.Parameters.Holds(own.Owner, own.Settings) })
	}}
	if len(changed) == 0 {
		return nil
	}
	if op.Again {
		w.drift(t, "another process changed kernel parameters; they are set again: "+strings.Join(changed, ", "))
	}
	return failpoint.Hit(failpoint.NetForwardingChanged)
}

// release leaves a parameter set if users appeared since; otherwise it does
// nothing.
func (w *Worker) release(ctx context.Context, t *turn, op Operation) error {
	since, err := w.Parameters.ReleaseInUse(ctx, op.Owner, op.Parameter, op.Users)
	if err != nil || len(since) == 0 {
		return err
	}
	w.Logger.Info("A kernel parameter stays set: another process may need it.", "parameter", op.Parameter, "others", since)
	for _, n := range t.d.Networks {
		t.addEvent(n, state.LevelInfo, "Kept", fmt.Sprintf(
			"kernel parameter %s keeps the value that hostler set: %s appeared since and may rely on it; otherwise set it back with `sysctl -w`", op.Parameter, strings.Join(since, ", ")))
	}
	return nil
}

// serve runs the DHCP server of a network.
func (w *Worker) serve(ctx context.Context, t *turn, op Operation) error {
	server := w.Eyes.Server(op.Server)
	if t.noDHCP != nil && !t.o.Serving[op.Server] {
		return t.noDHCP
	}
	started, err := server.Ensure(ctx, *op.DHCP)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(t.d.Networks, func(n Network) bool { return n.UID == op.UID })
	if started && op.Again {
		t.addEvent(t.d.Networks[i], state.LevelWarn, "Repaired", "dnsmasq had ended and is started again")
	}
	w.last[leftServer(op.Server)] = kept{fmt.Sprint(*op.DHCP), func() bool { return server.Holds(*op.DHCP) }}
	return nil
}
