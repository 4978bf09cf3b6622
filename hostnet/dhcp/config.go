// Package dhcp runs one dnsmasq per network for guests without a static
// address. It renders the configuration, runs the process and reads the leases.
package dhcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"hostler/internal/fault"
)

// Network is the network that one dnsmasq serves.
type Network struct {
	Bridge string
	// Index is the kernel's number of the bridge, or 0 if unknown. A changed
	// index restarts dnsmasq.
	Index int
	// Addresses are the host's own addresses on the bridge, with their subnets.
	Addresses []netip.Prefix
	// Ranges are leased to any client, at most one range per subnet.
	Ranges []Range
	// Search lists the domains in which guests look up short names.
	Search []string
	// Upstream lists the servers that answer queries for other domains. If it is
	// empty, dnsmasq uses the host's resolver configuration.
	Upstream []netip.Addr
	Hosts    []Host
	// User is the account that dnsmasq runs as, with a group of the same name.
	// If empty, Server.Ensure chooses the account.
	User string
}

// Range is a span of addresses, inclusive at both ends.
type Range struct{ First, Last netip.Addr }

// Host is a guest with a fixed address.
type Host struct {
	Name string
	MAC  string
	// Former are the MAC addresses of interfaces that have the addresses until the
	// guest's restart, at which the interface with MAC takes their place.
	Former    []string
	Addresses []netip.Addr
	// Named are the addresses to which the name leads. If there are none, it leads
	// to Addresses.
	Named []netip.Addr
}

const (
	// lease is the lease time of guests with an address of a range.
	lease = time.Hour
	// hostLease is the lease time of guests with a fixed address. It is long, so
	// that they keep the address while the agent is away for hours.
	hostLease = 12 * time.Hour
	// mostLeases limits the memory that dnsmasq uses for leases.
	mostLeases = 1 << 17
)

var (
	goodBridge = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)
	goodMAC    = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)
	goodName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	goodDomain = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)
)

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "cannot configure DHCP: "+format, args...)
}

// config returns dnsmasq's configuration. dir is the folder of its files. The
// text does not depend on the order of the network's hosts.
func config(n Network, dir string) (string, error) {
	if err := check(n, dir); err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", marker)
	line("interface=%s", n.Bridge)
	// dnsmasq binds its DHCP socket to this very device and receives nothing
	// from a recreated bridge. The comment line changes the text, so that
	// dnsmasq restarts with a new device.
	if n.Index != 0 {
		line("# The bridge is device %d.", n.Index)
	}
	line("bind-dynamic\nexcept-interface=lo\nno-hosts\nno-ping\ndomain-needed\nbogus-priv")
	line("dhcp-authoritative\ndhcp-rapid-commit\nquiet-dhcp\nquiet-dhcp6\nquiet-ra")
	// Identify clients by MAC address, because a client that chooses its own
	// client identifiers could get any number of leases.
	line("dhcp-ignore-clid\ndhcp-lease-max=%d", n.leases())
	if n.User != "" {
		line("user=%s\ngroup=%s", n.User, n.User)
	}
	line("dhcp-leasefile=%s\npid-file=%s", filepath.Join(dir, leasesFile), filepath.Join(dir, pidFile))
	if search := strings.Join(n.Search, ","); search != "" {
		line("dhcp-option=option:domain-search,%s\ndhcp-option=option6:domain-search,%s", search, search)
	}
	if len(n.Upstream) > 0 {
		line("no-resolv")
		for _, u := range n.Upstream {
			line("server=%s", u)
		}
	}
	six := false
	for _, r := range n.Ranges {
		subnet, _ := subnetOf(n, r.First)
		if r.First.Is4() {
			line("dhcp-range=%s,%s,%s,%ds", r.First, r.Last, mask(subnet), int(lease.Seconds()))
		} else {
			six = true
			// IPv6 clients always choose their own identifiers. Exclude guests with a
			// fixed address from the range, so that they get no other address.
			line("dhcp-range=%s,static,%d,%ds", subnet.Addr(), subnet.Bits(), int(lease.Seconds()))
			line("dhcp-range=tag:!known,%s,%s,%d,%ds", r.First, r.Last, subnet.Bits(), int(lease.Seconds()))
		}
	}
	if six {
		line("enable-ra")
	}
	hosts := slices.Clone(n.Hosts)
	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name+a.MAC, b.Name+b.MAC) })
	for _, h := range hosts {
		fields, names := h.macs(), []string{h.Name}
		for _, a := range h.Addresses {
			if a.Is6() {
				fields = append(fields, "["+a.String()+"]")
			} else {
				fields = append(fields, a.String())
			}
		}
		line("dhcp-host=%s,%s,%ds", strings.Join(fields, ","), h.Name, int(hostLease.Seconds()))
		named := h.Named
		if len(named) == 0 {
			named = h.Addresses
		}
		for _, a := range named {
			names = append(names, a.String())
		}
		if len(named) > 0 {
			line("host-record=%s", strings.Join(names, ","))
		}
	}
	return b.String(), nil
}

// leases returns the maximum number of leases. It is large enough that the
// leases of the ranges never prevent the lease of a fixed address.
func (n Network) leases() uint64 {
	count := uint64(1)
	for _, r := range n.Ranges {
		first, last := r.First.As16(), r.Last.As16()
		count += min(binary.BigEndian.Uint64(last[8:])-binary.BigEndian.Uint64(first[8:]), mostLeases) + 1
	}
	for _, h := range n.Hosts {
		count += uint64(len(h.Addresses))
	}
	return min(count, mostLeases)
}

func check(n Network, dir string) error {
	if !goodBridge.MatchString(n.Bridge) {
		return invalid("%q is not the name of a bridge", n.Bridge)
	}
	if strings.ContainsAny(dir, "\n#\"") || !filepath.IsAbs(dir) {
		return invalid("%q is not a folder for dnsmasq's files", dir)
	}
	if n.User != "" && !goodName.MatchString(n.User) {
		return invalid("%q is not an account", n.User)
	}
	for _, d := range n.Search {
		if !goodDomain.MatchString(d) {
			return invalid("%q is not a domain", d)
		}
	}
	for _, r := range n.Ranges {
		subnet, ok := subnetOf(n, r.First)
		if !ok || !subnet.Contains(r.Last) || r.Last.Less(r.First) {
			return invalid("the range %s to %s is not in one subnet of %s", r.First, r.Last, n.Bridge)
		}
		for _, p := range n.Addresses {
			if r.First.Compare(p.Addr()) <= 0 && p.Addr().Compare(r.Last) <= 0 {
				return invalid("the range %s to %s contains the host's address %s", r.First, r.Last, p.Addr())
			}
		}
	}
	seen := map[string]string{}
	for _, h := range n.Hosts {
		if !goodName.MatchString(h.Name) {
			return invalid("%q is not the name of a host", h.Name)
		}
		for _, mac := range h.macs() {
			if !goodMAC.MatchString(mac) {
				return invalid("%q is not a MAC address", mac)
			}
		}
		for _, key := range append(addresses(h), h.macs()...) {
			if seen[key] != "" {
				return invalid("%s belongs to both %s and %s", key, seen[key], h.Name)
			}
			seen[key] = h.Name
		}
		for _, a := range h.Addresses {
			if _, ok := subnetOf(n, a); !ok {
				return invalid("the address %s of %s is in no subnet of %s", a, h.Name, n.Bridge)
			}
		}
	}
	return nil
}

func (h Host) macs() []string { return append([]string{h.MAC}, h.Former...) }

func addresses(h Host) []string {
	var all []string
	for _, a := range h.Addresses {
		all = append(all, a.String())
	}
	return all
}

func subnetOf(n Network, a netip.Addr) (netip.Prefix, bool) {
	for _, p := range n.Addresses {
		if p.Contains(a) {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

func mask(subnet netip.Prefix) netip.Addr {
	all := ^uint32(0) << (32 - subnet.Bits())
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)})
}
