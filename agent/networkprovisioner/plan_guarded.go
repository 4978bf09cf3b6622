package networkprovisioner

import (
	"encoding/json"
	"fmt"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/internal/fault"
)

// object and guardKey return the names by which the guard knows a network's
// change.
func object(n Network) string { return spec.KindNetwork + "/" + n.Name }

func guardKey(n Network) string { return fmt.Sprintf("%s/%d", n.UID, n.Generation) }

// bears reports whether a link has an address that is not link-local.
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

// hold removes the steps on links that must not be carried out now. These are
// all steps of a guarded plan if the guard undid its change before, or while a
// change is armed.
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
	case restores(n, *p, own.Restored[p.Is.Bridge]):
		p.Links, p.Restored, p.Waits = nil, true, "NetworkManager puts "+own.Restored[p.Is.Bridge]+" under "+p.Is.Bridge
	}
}

// restores reports whether the steps only make again a bridge that the manager of
// its NIC makes itself, e.g. at the host's boot.
func restores(n Network, p Planned, nic string) bool {
	was := n.Status.Applied
	if nic == "" || n.Life != state.Alive || was == nil || len(changes(*was, p.Is)) > 0 {
		return false
	}
	return slices.ContainsFunc(p.Links, func(s hostnet.Step) bool {
		return s.Op == hostnet.MakeBridge || s.Op == hostnet.SetUp && s.Link == p.Is.Bridge || s.Op == hostnet.Enslave && s.Link == nic
	})
}

func undone(n Network, reason string) error {
	return fault.New(fault.NeedsOperator, "%s; change the declaration, or try again with `hostler retry %s`", reason, object(n))
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
