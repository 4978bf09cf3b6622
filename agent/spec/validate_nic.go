package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// networkTable caches the subnets of the declared networks and the taken
// addresses.
type networkTable struct {
	// subnets holds the subnets of the networks that were looked up so far.
	subnets map[string][]netip.Prefix
	taken   map[netip.Addr]string // maps an address to its path in this document
}

func (c *checker) networkTable() *networkTable {
	t := &networkTable{subnets: map[string][]netip.Prefix{}, taken: map[netip.Addr]string{}}
	for name := range c.decl.Networks {
		for i, p := range c.subnetsOf(name, t) {
			t.taken[p.Addr()] = addressPath(name, i)
		}
	}
	return t
}

func addressPath(network string, i int) string {
	return fmt.Sprintf("networks.%s.addresses[%d]", network, i)
}

// subnetsOf returns the subnets of a declared network. Each is written as the
// host's address in the subnet with the prefix length.
func (c *checker) subnetsOf(network string, t *networkTable) []netip.Prefix {
	subnets, known := t.subnets[network]
	if !known {
		n, _ := declared(c, KindNetwork, network, c.decl.Networks, c.others.Declared.Networks)
		for _, s := range n.Addresses {
			if p, err := netip.ParsePrefix(s); err == nil {
				subnets = append(subnets, p)
			}
		}
		t.subnets[network] = subnets
	}
	return subnets
}

// holder returns the path of the network or NIC that has an address, or "" if
// the address is free.
func (c *checker) holder(a netip.Addr, network string, t *networkTable) string {
	if first := cmp.Or(t.taken[a], claimantOf(c, c.others.Claims.addresses, a)); first != "" {
		return first
	}
	if i := slices.IndexFunc(c.subnetsOf(network, t), func(p netip.Prefix) bool { return p.Addr() == a }); i >= 0 {
		return addressPath(network, i)
	}
	return ""
}

func (c *checker) nics(at string, m Machine, t *networkTable) {
	for _, name := range c.names(at + ".networks") {
		here := at + ".networks." + name
		if !guestInterfaceForm.MatchString(name) || name == "lo" || name == "root" {
			c.badKey(here, "%s cannot be the name of an interface in the guest; use a name like eth0: 2 to 15 characters, beginning with a letter, neither lo nor root", quote(name))
		}
		nic := m.Networks[name]
		switch {
		case !c.ok(here):
			continue
		case !c.has(here + ".network"):
			c.bad(here+".network", "the network is missing; add it, like \"network: lan\"")
			continue
		case !reference(c, here+".network", KindNetwork, nic.Network, c.decl.Networks, c.others.Declared.Networks):
			continue
		}
		if c.has(here + ".address") {
			c.nicAddress(here+".address", nic, t)
		}
	}
}

func (c *checker) nicAddress(path string, nic NIC, t *networkTable) {
	subnets := c.subnetsOf(nic.Network, t)
	if nic.Address == "dhcp" {
		c.bad(path, "%s is not an address; leave the key out for any address of the network", quote(nic.Address))
	}
	if a, err := netip.ParseAddr(nic.Address); err == nil {
		for _, s := range subnets {
			if s.Contains(a) {
				c.bad(path, "%s has no prefix length; write %s/%d", quote(nic.Address), a, s.Bits())
			}
		}
	}
	p, ok := c.hostAddress(path, nic.Address)
	if !ok {
		return
	}
	inside := slices.IndexFunc(subnets, func(s netip.Prefix) bool { return s.Contains(p.Addr()) })
	switch {
	case len(subnets) == 0:
	case inside < 0:
		var ranges []string
		for _, s := range subnets[:min(len(subnets), maxHints)] {
			ranges = append(ranges, s.Masked().String())
		}
		c.bad(path, "%s is not in the network %s, which has %s; write an address of it, or leave the key out for any",
			p.Addr(), quote(nic.Network), strings.Join(ranges, ", "))
		return
	case subnets[inside].Bits() != p.Bits():
		c.bad(path, "%s has another prefix length than the network %s; write %s/%d", p, quote(nic.Network), p.Addr(), subnets[inside].Bits())
		return
	}
	if first := c.holder(p.Addr(), nic.Network, t); first != "" {
		c.bad(path, "%s is already the address of %s (%s); use another address", p.Addr(), objectOf(first), c.where(first))
		return
	}
	t.taken[p.Addr()] = path
}

// publish checks a machine's published ports. ports maps each published port of
// the host, e.g. tcp/8080, to the path that publishes it.
func (c *checker) publish(at string, m Machine, ports map[string]string) {
	if len(m.Publish) > 0 && len(m.Networks) == 0 && c.ok(at+".networks") {
		c.bad(at+".publish", "needs a network through which the ports are reached; add it to the machine under \"networks\"")
	}
	for i, p := range m.Publish {
		here := fmt.Sprintf("%s.publish[%d]", at, i)
		if !c.ok(here) {
			continue
		}
		protocol := c.oneOf(here+".protocol", p.Protocol, "tcp", "udp")
		c.port(here+".port", p.Port)
		if c.port(here+".host-port", p.HostPort) && protocol {
			key := p.Protocol + "/" + strconv.Itoa(p.HostPort)
			if first := cmp.Or(ports[key], claimantOf(c, c.others.Claims.ports, key)); first != "" {
				c.bad(here+".host-port", "%s port %d of the host is already published by %s (%s); use another port",
					p.Protocol, p.HostPort, objectOf(first), c.where(first))
			} else {
				ports[key] = here + ".host-port"
			}
		}
		for j, s := range p.Sources {
			source := fmt.Sprintf("%s.sources[%d]", here, j)
			if a, err := netip.ParseAddr(s); err == nil && c.ok(source) && a.Zone() == "" && !a.Is4In6() {
				c.bad(source, "%s has no prefix length; write %s/%d for that address only", quote(s), a, a.BitLen())
			} else if prefix, ok := c.prefix(source, s, "0.0.0.0/0", "::/0"); ok && prefix != prefix.Masked() {
				c.bad(source, "%s is an address, not a range; write %s, or %s/%d for that address only",
					quote(s), prefix.Masked(), prefix.Addr(), prefix.Addr().BitLen())
			}
		}
	}
}

func (c *checker) port(path string, port int) bool {
	switch {
	case !c.ok(path):
		return false
	case !c.has(path):
		c.bad(path, "is missing; give a port number, 1 to 65535")
		return false
	case port < 1 || port > 65535:
		c.bad(path, "%d is not a port number; use 1 to 65535", port)
		return false
	}
	return true
}
