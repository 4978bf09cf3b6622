package networkprovisioner

import (
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet/firewall"
	"hostler/internal/fault"
)

// The condition types of a network.
const (
	// conditionUpToDate: the network agrees with its declaration.
	conditionUpToDate = "UpToDate"
	// conditionUnobstructed: no foreign nftables table blocks a declared flow.
	conditionUnobstructed = "Unobstructed"
	// conditionWhole: all declared addresses and ports are assigned.
	conditionWhole = "Whole"
)

// reasonWaiting is the reason of conditions that resolve themselves.
const reasonWaiting = "Waiting"

func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// assess returns the status of a network after a pass. It is pure; now only
// dates changed conditions.
func assess(n Network, p Planned, err error, f failure, findings []firewall.Finding, now time.Time) spec.NetworkStatus {
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
		if err != nil {
			s.Message = err.Error()
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
	for _, finding := range findings {
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
	case err != nil:
		s.State, s.Message = stateError, err.Error()
		s.Attempts = spec.Attempts{Count: f.count, ErrorKind: string(fault.KindOf(err))}
		if !f.next.IsZero() {
			next := f.next
			s.Attempts.NextRetry = &next
		}
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
