package networkprovisioner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet/resolvconf"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// The condition types of a network.
const (
	// conditionUpToDate is true if the network agrees with its declaration.
	conditionUpToDate = "UpToDate"
	// conditionUnobstructed is true if no foreign nftables table blocks a
	// declared flow.
	conditionUnobstructed = "Unobstructed"
	// conditionWhole is true if all declared addresses and ports are assigned.
	conditionWhole = "Whole"
)

// reasonWaiting is the reason of a false condition that becomes true without
// the user.
const reasonWaiting = "Waiting"

func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// assess returns the status of a network after a pass. f is the network's
// failure, if any. assess is a pure function and uses now only to date changed
// conditions.
func assess(n Network, p Planned, f reconcile.Failure, now time.Time) spec.NetworkStatus {
	s := n.Status
	s.Conditions = slices.Clone(s.Conditions)
	s.Guests, s.NICSettings, s.Message = p.Guests, encodeSettings(p), ""
	set := func(kind string, bad []string, reason, fine string) {
		c := spec.Condition{Type: kind, Status: len(bad) == 0, Reason: fine, Since: now}
		if len(bad) > 0 {
			c.Reason, c.Message = reason, strings.Join(bad, "; ")
		}
		s.Conditions = spec.SetCondition(s.Conditions, c)
	}
	s.Attempts = spec.Attempts{}
	s.ObservedGeneration = n.Generation
	if n.Life != state.Alive {
		s.State, s.Message = stateDying, p.Waiting
		set(conditionUpToDate, some(p.Waiting), reasonWaiting, "Dying")
		if f.Err != nil {
			s.Message = f.Err.Error()
		}
		return s
	}
	var held []string
	if p.Held != "" {
		held = []string{p.Held + "; apply again with --allow restart"}
		s.Message = "needs restart: " + p.Held
	}
	if held == nil && p.Waits != "" {
		set(conditionUpToDate, some(p.Waits), reasonWaiting, "")
	} else {
		set(conditionUpToDate, held, "NeedsRestart", "AsDeclared")
	}
	var texts []string
	for _, finding := range p.Findings {
		texts = append(texts, finding.String())
	}
	set(conditionUnobstructed, texts, "ForeignDrop", "NothingInTheWay")
	var bad []string
	for _, e := range p.Errs {
		bad = append(bad, e.Error())
	}
	bad = append(bad, p.Notes...)
	set(conditionWhole, bad, "Incomplete", "AllGiven")
	s.Published = p.Published
	switch {
	case f.Err != nil:
		s.State, s.Message, s.Attempts = stateError, f.Err.Error(), f.Attempts
	case len(p.Errs) > 0:
		s.State, s.Message = stateError, bad[0]
		s.Attempts.ErrorKind = string(fault.KindOf(p.Errs[0]))
	case p.Waits != "":
		s.State, s.Message = statePending, p.Waits
	default:
		is := p.Is
		s.State, s.Applied = stateReady, &is
		s.Gateways, s.Nameservers = p.Gateways, p.Nameservers
		if s.Message == "" && len(bad)+len(texts) > 0 {
			s.Message = slices.Concat(bad, texts)[0]
		}
	}
	return s
}

// story adds the event of a pass for a network, if there is one, to t.events.
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
	case len(links) > 0 && n.Life == state.Alive && was != nil: // steps on a network that was not complete before are no repair
		t.addEvent(n, state.LevelWarn, "Repaired", strings.Join(links, "; "))
	}
}

func fieldsOf(changes []plan.Change) string {
	var names []string
	for _, c := range changes {
		names = append(names, c.Field)
	}
	return strings.Join(names, ", ")
}

// troubles returns the notice about a network's problems, or "" if it has none.
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

// unknownBridge returns the notice about a bridge with our stamp that the agent
// keeps although no network declares it.
func unknownBridge(o Observed, bridge string) string {
	if !hostsOwn(o, bridge) {
		return "the bridge " + bridge + " has this agent's stamp and no declaration: declare its network again, or remove it with `ip link delete " + bridge + "`"
	}
	with, back := "its NIC among the network's `interfaces`", "the NIC"
	if nics := nicsUnder(o.Host, bridge); len(nics) > 0 {
		back = strings.Join(nics, ", ")
		with = "`interfaces: [" + back + "]`"
	}
	return "the bridge " + bridge + " carries the host's own network and has this agent's stamp but no declaration, so it is not changed; " +
		"declare its network again, with " + with + "; to remove it, delete that network afterwards, which gives " + back + " the bridge's addresses and routes back"
}

// unresolved returns a notice if guests cannot resolve names because the host
// has no name server that they can reach, else "".
func unresolved(d Desired, p Plan, r resolvconf.Resolvers) string {
	if len(r.Servers) > 0 {
		return ""
	}
	var names []string
	mend, serve := "name a server in /etc/resolv.conf or, with systemd-resolved, as DNS= in /etc/systemd/resolved.conf", false
	for i, planned := range p.Networks {
		switch {
		case !planned.On, planned.Is.DHCP && (r.Local || !forwards(planned.Is)), !planned.Is.DHCP && len(planned.Gateways) == 0:
			continue
		case !planned.Is.DHCP && r.Local && len(planned.Is.Interfaces) == 0:
			serve = true
		}
		names = append(names, d.Networks[i].Name)
	}
	if len(names) == 0 {
		return ""
	}
	if serve {
		mend += ", or declare `dhcp: true` for the network, whose DNS server forwards to the host's name servers"
	}
	have := "the host has no name server configured"
	if r.Local {
		have = "the host's only name server is itself"
	}
	return fmt.Sprintf("guests on network %s cannot resolve names: %s; %s", strings.Join(names, ", "), have, mend)
}
