package networkprovisioner

import (
	"slices"

	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/sysctl"
)

// These are the owners of our kernel parameters.
const (
	ownerNetworks = "networks"
	ownerRouters  = "networks-routers"
)

// These parameters make the host a router.
const (
	forwarding4 = "net/ipv4/ip_forward"
	forwarding6 = "net/ipv6/conf/all/forwarding"
)

// forwarders returns the foreign bridges whose guests reach other networks only
// through the host, such as those of Docker, libvirt and LXD. These bridges
// have an address of the IP version, no host NIC under them and no default
// route of the host.
func forwarders(o hostnet.Observed, policy Policy, four bool) []string {
	var names []string
	for _, l := range o.Links {
		if l.Kind != "bridge" || hostnet.Ours(policy.Namespace, l) {
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

// acceptRA returns the name of the parameter that lets a router accept other
// routers' advertisements.
func acceptRA(link string) string { return sysctl.Name("net", "ipv6", "conf", link, "accept_ra") }

// parameters adds the kernel parameters of a network.
func (m *maker) parameters(p Planned) {
	if !p.On {
		return
	}
	four, six := false, false
	for _, a := range prefixes(p.Is.Addresses) {
		four, six = four || a.Addr().Is4(), six || a.Addr().Is6()
	}
	m.four = m.four || forwards(p.Is) && four
	m.six = m.six || (forwards(p.Is) || len(p.Published) > 0) && six
	_, there := m.o.Host.Link(p.Is.Bridge)
	bridge := func(version, name, value string) {
		if there && (version == "ipv4" || m.o.IPv6) {
			m.settings = append(m.settings, sysctl.Setting{Name: sysctl.Name("net", version, "conf", p.Is.Bridge, name), Value: value})
		}
	}
	if len(p.Is.Interfaces) == 0 {
		bridge("ipv6", "accept_ra", "0") // guests must not advertise routes to the host
	}
	if p.Is.ProxyARP {
		bridge("ipv4", "proxy_arp", "1")
		if six { // the kernel answers only for neighbours that are added by hand
			bridge("ipv6", "proxy_ndp", "1")
		}
	}
	if len(p.Published) > 0 {
		bridge("ipv4", "route_localnet", "1") // see firewall.table
	}
}

// forwarding plans the parameters that make the host a router, also for the
// recalled networks. accept_ra of the links in Routers is set first, because
// the kernel drops advertised routes when IPv6 forwarding starts unless
// accept_ra is 2.
func (m *maker) forwarding(recalled []firewall.Network) {
	four, six := m.four || len(m.p.Rules.Publish) > 0, m.six
	for _, n := range recalled {
		for _, s := range n.Subnets {
			four, six = four || n.Forward && s.Addr().Is4(), six || n.Forward && s.Addr().Is6()
		}
	}
	settings := m.settings
	if four {
		settings = append(settings, sysctl.Setting{Name: forwarding4, Value: "1", Users: forwarders(m.o.Host, m.policy, true)})
	}
	if six && m.o.IPv6 {
		users := forwarders(m.o.Host, m.policy, false)
		settings = append(settings, sysctl.Setting{Name: forwarding6, Value: "1", Users: users})
		m.p.Routers = routers(m.o, settings, users)
	}
	m.p.Parameters = settings
}

// routers returns the accept_ra settings for the links of uplinkParameters().
// Without them an advertised route would expire and not return. routers leaves
// out missing links and links whose accept_ra a network sets. It also leaves
// out links with accept_ra 0, e.g. because systemd-networkd handles
// advertisements itself.
func routers(o Observed, settings []sysctl.Setting, users []string) (all []sysctl.Setting) {
	for _, name := range uplinkParameters(o) {
		value, there := o.AcceptRA[name]
		otherwise := slices.ContainsFunc(settings, func(s sysctl.Setting) bool { return s.Name == name })
		if there && value != "0" && !otherwise {
			all = append(all, sysctl.Setting{Name: name, Value: "2", Users: users})
		}
	}
	return all
}

// uplinkParameters returns the names of the accept_ra parameters of the links
// whose default route came with an advertisement, and of those that hostler has
// already set.
func uplinkParameters(o Observed) []string {
	var names []string
	for _, link := range advertised(o.Host) {
		names = append(names, acceptRA(link))
	}
	for _, name := range o.Owned[ownerRouters] {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

const protocolRA = 9 // RTPROT_RA: a router advertisement added the route

// advertised returns the links whose default route came with an advertisement.
func advertised(o hostnet.Observed) []string {
	var links []string
	for _, r := range o.Routes {
		if r.Default() && r.Destination.Addr().Is6() && r.Protocol == protocolRA && !slices.Contains(links, r.Link) {
			links = append(links, r.Link)
		}
	}
	slices.Sort(links)
	return links
}
