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
	"hostler/hostnet"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// optional holds the descriptions of the optional operations for the log.
var optional = map[Op]string{
	opStray:  "remove a device that nothing declares or uses",
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
		defer w.Signal() // a dying network may be gone now
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
	case opRestore:
		return w.Eyes.Persister.Restore(ctx, op.Boot.Name)
	case opDrop:
		delete(w.last, leftBoot(op.Boot.Name))
		return w.Eyes.Persister.Drop(ctx, op.Boot.Name)
	case opForget:
		t.gone[op.UID] = true
	}
	return nil
}

// install installs the missing programs. An error affects all networks. If the
// installation fails but only programs for DHCP are missing, install sets
// t.noDHCP and returns nil, so that networks without DHCP work.
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

// awaitsRetry reports whether the network's operations failed and the retry is
// not due yet.
func (w *Worker) awaitsRetry(n Network, now time.Time) bool {
	return !w.failed.Until(n.UID, n.Generation, now).IsZero()
}

// change carries out the steps on a network's links in order and stops at a
// failure. The guard makes a change of the host's own network. change also
// succeeds if such a change awaits confirmation, because its steps are done.
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
	change := *op.Change
	// The clients end after the change is armed, because until then the watchdog of an
	// earlier change may start them again.
	change.Begin = func(ctx context.Context) error { return w.pause(ctx, linksOf(op.Links)) }
	if err := w.Guard.Run(ctx, change); !fault.Is(err, fault.NotReady) {
		return err
	}
	return nil
}

// pause ends the DHCP clients that would lease again for the links.
func (w *Worker) pause(ctx context.Context, links []string) error {
	if w.Eyes.Persister == nil {
		return nil
	}
	for _, link := range links {
		if err := w.Eyes.Persister.Pause(ctx, link); err != nil {
			return err
		}
	}
	return nil
}

// linksOf returns the links whose addresses or routes the steps change.
func linksOf(steps []hostnet.Step) (links []string) {
	for _, s := range steps {
		if (s.Address != nil || s.Route != nil || s.Op == hostnet.Enslave || s.Op == hostnet.RemoveBridge) && !slices.Contains(links, s.Link) {
			links = append(links, s.Link)
		}
	}
	return links
}

// resume starts the DHCP clients that Pause ended if their link is no longer
// under a bridge, because the guard undid the link's change.
func (w *Worker) resume(ctx context.Context, t *turn) {
	t.paused, t.resume = t.o.Own.Armed != "", time.Time{}
	if w.Eyes.Persister == nil || t.paused { // the end of the armed change causes a pass
		return
	}
	left, err := w.Eyes.Persister.Resume(ctx, t.o.Host.Free)
	if err != nil {
		w.Logger.Warn("A DHCP client cannot be started again.", "error", err)
	}
	if t.paused = left; !left {
		w.resumes = 0
		return
	}
	if t.round == 1 {
		w.resumes++
	}
	t.resume = t.now.Add(delays.After(w.resumes))
}

func (w *Worker) firewall(ctx context.Context, t *turn, op Operation) error {
	changed, err := w.Firewall.Apply(ctx, t.p.Rules)
	if err != nil {
		return err
	}
	if changed && op.Again {
		w.drift(t, "another process changed the firewall; it is loaded again")
	}
	w.last[leftRules] = kept{t.p.rules(), func() bool { return true }} // Observed.Tables shows whether the host still has the rules
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

// release lets go of a parameter but leaves it set, if foreign bridges that
// need it have appeared since the agent set it. Otherwise it does nothing.
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
