package networkprovisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/guard"
	"hostler/hostnet/persist"
	"hostler/internal/fault"
)

// Guard makes changes that the host's own connection depends on, and undoes
// them if they break it; see package guard.
type Guard interface {
	// Run returns nil when the change is kept and fault.NotReady while it awaits
	// confirmation.
	Run(ctx context.Context, c guard.Change) error
}

// Guarding reports the progress of guarded changes; see package guard.
type Guarding interface {
	Armed() (guard.Armed, bool)
	Refused(object, key string) string
}

// BootPersister makes bridges over host NICs survive a reboot.
type BootPersister interface {
	// Persist does so for a bridge; the note is advice for the operator.
	Persist(ctx context.Context, b persist.Bridge) (note string, err error)
	// Drop undoes Persist; it succeeds for a bridge that is not persistent.
	Drop(ctx context.Context, bridge string) error
	// Bridges returns the persistent bridges.
	Bridges() []string
}

// OwnNetwork is the observed state of the host's own network.
type OwnNetwork struct {
	// Refused holds the reasons why changes are not repeated, by network.
	Refused map[string]string
	// Armed is the object whose change is not kept yet, and Waits a sentence
	// about it for the status.
	Armed, Waits string
	// Persistent are the bridges that survive a reboot.
	Persistent []string
}

// object and guardKey identify a network's change to the guard.
func object(n Network) string { return spec.KindNetwork + "/" + n.Name }

func guardKey(n Network) string { return fmt.Sprintf("%s/%d", n.UID, n.Generation) }

// ownNetwork reads the guard's state.
func (e Eyes) ownNetwork(d Desired) OwnNetwork {
	own := OwnNetwork{Refused: map[string]string{}}
	if e.Guard == nil {
		return own
	}
	for _, n := range d.Networks {
		if reason := e.Guard.Refused(object(n), guardKey(n)); reason != "" {
			own.Refused[n.Name] = reason
		}
	}
	if a, armed := e.Guard.Armed(); armed {
		own.Armed, own.Waits = a.Object, "a change of the host's own network is under way"
		if a.Phase == guard.Confirming {
			own.Waits = "waits for `hostler confirm`; without it the change is reverted"
		}
	}
	if e.Persister != nil {
		own.Persistent = e.Persister.Bridges()
	}
	return own
}

// bears reports whether a link has an address other than link-local.
func bears(o hostnet.Observed, link string) bool {
	return slices.ContainsFunc(o.AddressesOf(link), func(a hostnet.Address) bool { return !a.Prefix.Addr().IsLinkLocalUnicast() })
}

const protocolDHCP = 16 // RTPROT_DHCP

func leasedAddress(a hostnet.Address) bool { return !a.Permanent() }

func leasedRoute(r hostnet.Route) bool {
	return r.Protocol == protocolDHCP || r.Protocol == protocolRA
}

func withoutLeases(c hostnet.NICSettings) hostnet.NICSettings {
	c.Addresses = slices.DeleteFunc(slices.Clone(c.Addresses), leasedAddress)
	c.Routes = slices.DeleteFunc(slices.Clone(c.Routes), leasedRoute)
	return c
}

// leasedFrom returns a NIC's original settings, with the leases that the bridge
// has now.
func leasedFrom(had hostnet.NICSettings, o hostnet.Observed, bridge string) hostnet.NICSettings {
	now, err := hostnet.Carry(o, bridge)
	if err != nil {
		return had
	}
	had, now = withoutLeases(had), onlyLeases(now)
	had.Addresses = append(had.Addresses, now.Addresses...)
	had.Routes = append(had.Routes, now.Routes...)
	return had
}

func onlyLeases(c hostnet.NICSettings) hostnet.NICSettings {
	c.Addresses = slices.DeleteFunc(slices.Clone(c.Addresses), func(a hostnet.Address) bool { return !leasedAddress(a) })
	c.Routes = slices.DeleteFunc(slices.Clone(c.Routes), func(r hostnet.Route) bool { return !leasedRoute(r) })
	return c
}

// hold removes the steps that must not be taken now: the steps of an undone
// change, and all guarded steps while a change is armed.
func hold(n Network, p *Planned, own OwnNetwork) {
	if own.Armed == object(n) {
		p.Waits = own.Waits
	}
	if !p.guarded() {
		return
	}
	switch reason := own.Refused[n.Name]; {
	case own.Armed != "":
		p.Links = nil
		if p.Waits == "" {
			p.Waits = "waiting for the change of " + own.Armed + ", which is not confirmed yet"
		}
	case reason != "":
		p.Links = nil
		if n.Life != state.Alive {
			p.Waiting = undone(n, reason).Error()
		}
	}
}

func undone(n Network, reason string) error {
	return fault.New(fault.NeedsOperator, "%s; change the declaration, or try again with `hostler retry %s`", reason, object(n))
}

// change carries out the steps on a network's links.
func (w *Worker) change(ctx context.Context, n Network, p Planned) error {
	if p.guarded() {
		return w.own(ctx, n, p)
	}
	for _, s := range p.Links {
		if err := w.Links.Apply(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// own makes a change of the host's own network. It returns nil also for a
// change that awaits confirmation, because its steps are done.
func (w *Worker) own(ctx context.Context, n Network, p Planned) error {
	if w.Guard == nil {
		return fault.New(fault.NeedsOperator, "cannot change the host's own network: this agent runs without a network guard")
	}
	c := guard.Change{Object: object(n), Key: guardKey(n), Steps: p.Links}
	if was := n.Status.Applied; n.Life == state.Alive && (was == nil || len(changes(*was, p.Is)) > 0) {
		c.Confirm = n.Record.Confirm.Std()
	}
	err := w.Guard.Run(ctx, c)
	if fault.Is(err, fault.NotReady) {
		return nil
	}
	return err
}

// encodeSettings encodes the NICs' original settings for the status.
func encodeSettings(p Planned) map[string]json.RawMessage {
	if len(p.NICSettings) == 0 {
		return nil
	}
	all := map[string]json.RawMessage{}
	for nic, had := range p.NICSettings {
		all[nic] = spec.Encode(had)
	}
	return all
}

// persistBridges makes exactly the bridges over host NICs survive a reboot,
// once their change is kept.
func (w *Worker) persistBridges(ctx context.Context, t *turn) {
	if w.Eyes.Persister == nil || t.o.Own.Armed != "" {
		return
	}
	needed, again := map[string]bool{}, false
	for i, n := range t.d.Networks {
		p := &t.p.Networks[i]
		again = again || len(p.Links) > 0 && t.errs[n.UID] == nil && !w.awaitsRetry(t, i)
		if !p.On || len(p.Is.Interfaces) == 0 {
			continue
		}
		needed[p.Is.Bridge] = true
		nic := p.Is.Interfaces[0]
		l, there := t.o.Host.Link(nic)
		if len(p.Links) > 0 || t.errs[n.UID] != nil || len(p.Errs) > 0 || !there || l.Master != p.Is.Bridge {
			continue
		}
		if len(p.Is.Interfaces) > 1 {
			p.Notes = append(p.Notes, "after the host's start "+strings.Join(p.Is.Interfaces[1:], ", ")+" joins the bridge only when the agent starts")
		}
		bridge, _ := t.o.Host.Link(p.Is.Bridge)
		note, err := w.Eyes.Persister.Persist(ctx, persist.Bridge{
			Name: p.Is.Bridge, NIC: nic, Index: l.Index, Stamp: hostnet.Stamp(w.policy.Namespace, n.UID),
			MAC: bridge.MAC, MTU: p.Is.MTU, Addresses: prefixes(p.Is.Addresses), Namespace: w.policy.Namespace,
		})
		if err != nil {
			note = err.Error()
		}
		if note != "" {
			p.Notes = append(p.Notes, note)
		}
	}
	for _, bridge := range t.o.Own.Persistent {
		// A bridge that a NIC could not leave must survive too, unless its files
		// themselves put the NIC back under it.
		if needed[bridge] || slices.Contains(t.p.Unknown, bridge) || !again && t.stuck(bridge) {
			continue
		}
		dying := t.dying(bridge)
		if dying >= 0 && w.awaitsRetry(t, dying) {
			t.p.Networks[dying].Gone = false
			continue
		}
		err := w.Eyes.Persister.Drop(ctx, bridge)
		switch {
		case err != nil && dying >= 0: // the record stays until this succeeds
			uid := t.d.Networks[dying].UID
			t.errs[uid] = errors.Join(t.errs[uid], err)
		case err != nil:
			w.Logger.Warn("The boot configuration of a removed bridge cannot be removed.", "bridge", bridge, "error", err)
		}
	}
}

// dying returns the dying network with that bridge, or -1.
func (t *turn) dying(bridge string) int {
	for i, n := range t.d.Networks {
		if n.Life != state.Alive && t.p.Networks[i].Is.Bridge == bridge {
			return i
		}
	}
	return -1
}

// stuck reports whether a host NIC is still under the bridge.
func (t *turn) stuck(bridge string) bool {
	return len(nicsUnder(t.o.Host, bridge)) > 0 || slices.ContainsFunc(t.p.Networks, func(p Planned) bool {
		for nic := range p.NICSettings {
			if l, _ := t.o.Host.Link(nic); l.Master == bridge {
				return true
			}
		}
		return false
	})
}
