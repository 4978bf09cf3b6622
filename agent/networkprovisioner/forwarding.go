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

// forwarders are the bridges of others whose guests have no way out but through
// the host, as those of Docker, libvirt and LXD: with an address of the IP
// version, over no NIC of the host, and not the host's own way out.
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

// acceptRA is the parameter by which a router, too, heeds other routers.
func acceptRA(link string) string { return sysctl.Name("net", "ipv6", "conf", link, "accept_ra") }

func (w *Worker) parameters(ctx context.Context, t *turn, same bool) error {
	if len(t.p.Rules.Networks) == 0 && len(t.p.Unknown) > 0 {
		return nil // as with the firewall
	}
	if err := w.leave(ctx, t); err != nil {
		return err
	}
	var changed []string
	wanted := map[string][]sysctl.Setting{ownerRouters: t.p.Routers, ownerNetworks: t.p.Parameters}
	owners := []string{ownerRouters, ownerNetworks}
	if len(t.p.Routers) == 0 { // what is put back may be a link that forwards: until then routers are heeded
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
		w.drift(t, "kernel parameters were changed by another and are set again: "+strings.Join(changed, ", "))
	}
	return failpoint.Hit(failpoint.NetForwardingChanged)
}

// heed adds the links whose routers are heeded already: a route that came with
// an advertisement runs out where the next is not heeded, and would not come
// back. Left out are those that are gone, those where the kernel is not to
// listen, as systemd-networkd does so itself, and those of which a network says
// otherwise.
func (w *Worker) heed(t *turn) error {
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

// leave keeps the host a router where no network of ours needs it any more but
// somebody else came to rely on it since.
func (w *Worker) leave(ctx context.Context, t *turn) error {
	for _, forwarding := range []string{forwarding4, forwarding6} {
		if slices.ContainsFunc(t.p.Parameters, func(s sysctl.Setting) bool { return s.Name == forwarding }) {
			continue
		}
		if forwarding == forwarding6 { // a router that heeds no others would lose its own way out
			owned, err := w.Parameters.Owned(ownerRouters)
			if err != nil {
				return err
			}
			for _, name := range owned {
				if err := w.leaveTo(ctx, t, ownerRouters, name, t.p.Forwarders[forwarding6]); err != nil {
					return err
				}
			}
		}
		if err := w.leaveTo(ctx, t, ownerNetworks, forwarding, t.p.Forwarders[forwarding]); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) leaveTo(ctx context.Context, t *turn, owner, name string, users []string) error {
	since, err := w.Parameters.Leave(ctx, owner, name, users)
	if err != nil || len(since) == 0 {
		return err
	}
	w.Logger.Info("A kernel parameter is left to others.", "parameter", name, "others", since)
	for _, n := range t.d.Networks {
		t.tell(n, state.LevelInfo, "Kept", fmt.Sprintf(
			"kernel parameter %s stays as hostler has set it: %s came since and may rely on it; set it back by hand if nothing does", name, strings.Join(since, ", ")))
	}
	return nil
}
