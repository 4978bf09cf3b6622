// Package firewall manages hostler's own nftables table: forwarding for its
// bridges, masquerading, published ports, ingress, and filters against guests
// that spoof addresses. It replaces the table as a whole in one transaction; it
// reads other tables but never changes them.
package firewall

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// Rules is the whole wanted content of the table.
type Rules struct {
	Networks []Network
	Publish  []Publish
	Ingress  []Ingress
	Guests   []Guest
}

// Network is a bridge with its subnets.
type Network struct {
	// Owner is the network's uid.
	Owner   string
	Bridge  string
	Subnets []netip.Prefix
	// Forward lets guests reach networks beyond the host.
	Forward bool
	// NAT masquerades the guests behind the host's address. New connections then
	// reach guests only through Publish and Ingress.
	NAT bool
	// Services lets guests reach DHCP and DNS on the host.
	Services bool
	// HostAccess lets guests reach everything else on the host.
	HostAccess bool
	// Addresses are the host's own addresses on a bridge with HostAccess. A guest
	// that chooses its IPv6 addresses must not choose these.
	Addresses []netip.Addr
}

// Publish makes a guest's port reachable at the host's addresses, e.g. port 80
// of a guest at port 8080 of the host.
type Publish struct {
	Owner    string
	Bridge   string
	Protocol string // tcp or udp
	HostPort uint16
	Address  netip.Addr
	Port     uint16
	// Sources are the addresses that may connect. If it is empty, any address may
	// connect.
	Sources []netip.Prefix
}

// Ingress accepts new connections to a guest's own address.
type Ingress struct {
	Owner    string
	Bridge   string
	Address  netip.Addr
	Protocol string // tcp, udp or icmp (of both IP versions)
	// First and Last are ports; a Last of 0 means First alone. Both are 0 for
	// icmp.
	First, Last uint16
	Sources     []netip.Prefix
}

// Guest is a NIC whose frames must bear only its own addresses.
type Guest struct {
	// Owner is the machine's uid, or another name that no second machine has.
	Owner  string
	Bridge string
	MAC    string
	// Ports are the names of the host's end of the NIC, whose incoming frames are
	// filtered. They are the assigned name, and the name of a device that an
	// earlier release left unnamed. Without ports, the filter checks only packets
	// routed through the host, for MAC and IP addresses that belong together.
	Ports []string
	// Addresses are the only addresses that the guest may use; if empty, only
	// its MAC address is enforced.
	Addresses []netip.Addr
	// Router means that only the guest's MAC and link-local addresses are
	// enforced, so that it may route, advertise itself and serve DHCP.
	Router bool
}

var (
	// These patterns exclude quotes, because the script puts quotes around the
	// strings.
	goodBridge    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)
	goodOwner     = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,64}$`)
	goodNamespace = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	goodMAC       = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)
)

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "cannot make firewall rules: "+format, args...)
}

// Check returns an error for the first invalid rule, or nil.
func (r Rules) Check() error {
	bridges := map[string]bool{}
	for _, n := range r.Networks {
		if err := checkWords(n.Owner, n.Bridge); err != nil {
			return err
		}
		if bridges[n.Bridge] {
			return invalid("the bridge %s is listed twice", n.Bridge)
		}
		bridges[n.Bridge] = true
	}
	ports := map[string]string{}
	for _, p := range r.Publish {
		if err := checkWords(p.Owner, p.Bridge); err != nil {
			return err
		}
		at := fmt.Sprintf("%s port %d", p.Protocol, p.HostPort)
		version := fmt.Sprint(at, p.Address.Is4())
		switch {
		case p.Protocol != "tcp" && p.Protocol != "udp":
			return invalid("a published port is of tcp or udp, not %q", p.Protocol)
		case p.HostPort == 0 || p.Port == 0:
			return invalid("a published port has a number from 1 to 65535")
		case !p.Address.IsValid():
			return invalid("the published %s has no address to lead to", at)
		case !bridges[p.Bridge]:
			return invalid("the published %s leads to the unknown bridge %s", at, p.Bridge)
		case ports[version] != "":
			return fault.New(fault.Conflict, "cannot make firewall rules: the %s is published by %s and %s", at, ports[version], p.Owner)
		}
		ports[version] = p.Owner
	}
	for _, i := range r.Ingress {
		if err := checkWords(i.Owner, i.Bridge); err != nil {
			return err
		}
		switch {
		case !bridges[i.Bridge]:
			return invalid("ingress leads to the unknown bridge %s", i.Bridge)
		case !i.Address.IsValid():
			return invalid("ingress of %s has no address to lead to", i.Owner)
		case i.Protocol == "icmp" && (i.First != 0 || i.Last != 0):
			return invalid("icmp has no ports")
		case i.Protocol != "icmp" && i.Protocol != "tcp" && i.Protocol != "udp":
			return invalid("ingress is of tcp, udp or icmp, not %q", i.Protocol)
		case i.Protocol != "icmp" && (i.First == 0 || i.Last != 0 && i.Last < i.First):
			return invalid("%d to %d is no range of ports", i.First, i.Last)
		}
	}
	for _, g := range r.Guests {
		if err := checkWords(g.Owner, g.Bridge); err != nil {
			return err
		}
		if !goodMAC.MatchString(g.MAC) {
			return invalid("%q is not a MAC address", g.MAC)
		}
		for _, port := range g.Ports {
			if !goodBridge.MatchString(port) {
				return invalid("%q is no name of a network device", port)
			}
		}
		if !bridges[g.Bridge] {
			return invalid("the guest %s is on the unknown bridge %s", g.Owner, g.Bridge)
		}
	}
	return nil
}

func checkWords(owner, bridge string) error {
	if !goodOwner.MatchString(owner) {
		return invalid("%q is no owner", owner)
	}
	if !goodBridge.MatchString(bridge) {
		return invalid("%q is not the name of a bridge", bridge)
	}
	return nil
}

// tableName returns the name of a namespace's table.
func tableName(namespace string) string {
	if namespace == "hostler" {
		return namespace
	}
	return "hostler_" + strings.ReplaceAll(namespace, "-", "_")
}

// ofVersion returns the prefixes of IPv4 or of IPv6. Unlike an empty list of
// sources, an empty result does not stand for any address.
func ofVersion(prefixes []netip.Prefix, four bool) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return p.Addr().Is4() != four })
}
