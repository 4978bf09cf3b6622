package networkprovisioner

import (
	"slices"

	"hostler/agent/spec"
	"hostler/hostnet"
	"hostler/hostnet/ipam"
	"hostler/internal/fault"
)

// unfit returns the reason why the declared network cannot be on this host, or
// nil.
func unfit(n Network, o hostnet.Observed, policy Policy) error {
	is := n.Record.Network
	if l, there := o.Link(is.Bridge); there && !ours(l, policy.Namespace) {
		what := "a bridge that is not hostler's"
		if l.Kind != "bridge" {
			what = "a network device of this host and not a bridge"
		}
		return fault.New(fault.Conflict, "cannot make bridge %s: it is %s; choose another name for the network's bridge, or remove that device", l.Name, what)
	}
	if made(n, Observed{Host: o}) && n.Status.Applied != nil && slices.Equal(n.Status.Applied.Addresses, is.Addresses) {
		return nil
	}
	return clash(is, n, o, policy)
}

// ours reports whether a link is a bridge of this agent, stamped or half made.
func ours(l hostnet.Link, namespace string) bool {
	of, _, stamped := hostnet.ParseStamp(l.Alias)
	return l.Kind == "bridge" && (stamped && of == namespace || l.Alias == "" && l.Group == hostnet.HalfMadeGroup(namespace))
}

// clash returns an error if the host reaches a subnet of the network over
// another link. Our own bridges and the network's interfaces do not count.
func clash(is spec.Network, n Network, o hostnet.Observed, policy Policy) error {
	var routes []ipam.HostRoute
	for _, r := range o.Routes {
		l, _ := o.Link(r.Link)
		namespace, _, ours := hostnet.ParseStamp(l.Alias)
		if r.Link == "" || r.Link == is.Bridge || ours && namespace == policy.Namespace || slices.Contains(is.Interfaces, r.Link) {
			continue
		}
		if r.Destination.Addr().IsLinkLocalUnicast() || r.Destination.Addr().IsMulticast() || l.Loopback {
			continue
		}
		routes = append(routes, ipam.HostRoute{Destination: r.Destination, Link: r.Link})
	}
	return ipam.Clash(ipam.Network{Name: n.Name, Addresses: prefixes(is.Addresses)}, routes)
}
