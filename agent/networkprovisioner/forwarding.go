package networkprovisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/sysctl"
)

// The parameters that make the host a router.
const (
	forwarding4 = "net/ipv4/ip_forward"
	forwarding6 = "net/ipv6/conf/all/forwarding"
)

// forwarders returns the foreign bridges whose guests reach other networks only
// through the host, such as those of Docker, libvirt and LXD. They have an
// address of the IP version, no host NIC under them, and not the host's default
// route.
func forwarders(o hostnet.Observed, policy Policy, four bool) []string {
	var names []string
	for _, l := range o.Links {
		if l.Kind != "bridge" || ours(l, policy.Namespace) {
			continue
		}
		addressed := slices.ContainsFunc(o.AddressesOf(l.Name), func(a hostnet.Address) bool {
			return a.Prefix.Addr().Is4() == four && !a.Prefix.Addr().IsLinkLocalUnicast()
		})
		out := slices.ContainsFunc(o.RoutesOf(l.Name), hostnet.Route.Default)
		if addressed && !out && len(nicsUnder(o, l.Name)) == 0 {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// acceptRA is the parameter that lets a router accept other routers'
// advertisements.
func acceptRA(link string) string { return sysctl.Name("net", "ipv6", "conf", link, "accept_ra") }

func (w *Worker) parameters(ctx context.Context, t *turn, same bool) error {
	if len(t.p.Rules.Networks) == 0 && len(t.p.Unknown) > 0 {
		return nil // as with the firewall
	}
	if err := w.releaseForwarding(ctx, t); err != nil {
		return err
	}
	var changed []string
	wanted := map[string][]sysctl.Setting{ownerRouters: t.p.Routers, ownerNetworks: t.p.Parameters}
	owners := []string{ownerRouters, ownerNetworks}
	if len(t.p.Routers) == 0 { // a link still forwarding keeps accept_ra until forwarding is off
		slices.Reverse(owners)
	}
	for _, owner := range owners {
		names, err := w.Parameters.Apply(ctx, owner, wanted[owner])
		if err != nil {
			return err
		}
		changed = append(changed, names...)
	}
	if len(changed) == 0 {
		return nil
	}
	if same && w.last != nil {
		w.drift(t, "another process changed kernel parameters; they are set again: "+strings.Join(changed, ", "))
	}
	return failpoint.Hit(failpoint.NetForwardingChanged)
}

// keepRouters adds the links that already accept router advertisements. An
// advertised route would otherwise expire and not return. keepRouters omits
// missing links, links with accept_ra 0, e.g. because systemd-networkd handles
// advertisements itself, and links whose accept_ra a network sets.
func (w *Worker) keepRouters(t *turn) error {
	if !slices.ContainsFunc(t.p.Parameters, func(s sysctl.Setting) bool { return s.Name == forwarding6 }) {
		return nil
	}
	owned, err := w.Parameters.Owned(ownerRouters)
	if err != nil {
		return err
	}
	var already []sysctl.Setting
	for _, name := range owned {
		already = append(already, sysctl.Setting{Name: name, Value: "2", Users: t.p.Forwarders[forwarding6]})
	}
	all := joined(t.p.Routers, already)
	t.p.Routers = nil
	for _, s := range all {
		value, err := w.Parameters.Read(s.Name)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		otherwise := slices.ContainsFunc(t.p.Parameters, func(p sysctl.Setting) bool { return p.Name == s.Name })
		if err == nil && value != "0" && !otherwise {
			t.p.Routers = append(t.p.Routers, s)
		}
	}
	return nil
}

// releaseForwarding leaves forwarding on after the last network that needs it,
// if foreign bridges have come to rely on it since.
func (w *Worker) releaseForwarding(ctx context.Context, t *turn) error {
	for _, forwarding := range []string{forwarding4, forwarding6} {
		if slices.ContainsFunc(t.p.Parameters, func(s sysctl.Setting) bool { return s.Name == forwarding }) {
			continue
		}
		if forwarding == forwarding6 { // a router that ignores advertisements would lose its own default route
			owned, err := w.Parameters.Owned(ownerRouters)
			if err != nil {
				return err
			}
			for _, name := range owned {
				if err := w.releaseParameter(ctx, t, ownerRouters, name, t.p.Forwarders[forwarding6]); err != nil {
					return err
				}
			}
		}
		if err := w.releaseParameter(ctx, t, ownerNetworks, forwarding, t.p.Forwarders[forwarding]); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) releaseParameter(ctx context.Context, t *turn, owner, name string, users []string) error {
	since, err := w.Parameters.ReleaseInUse(ctx, owner, name, users)
	if err != nil || len(since) == 0 {
		return err
	}
	w.Logger.Info("A kernel parameter stays set: another process may need it.", "parameter", name, "others", since)
	for _, n := range t.d.Networks {
		t.addEvent(n, state.LevelInfo, "Kept", fmt.Sprintf(
			"kernel parameter %s keeps the value that hostler set: %s appeared since and may rely on it; otherwise set it back with `sysctl -w`", name, strings.Join(since, ", ")))
	}
	return nil
}
