package initialisers

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"hostler/internal/paths"
)

// HostNetwork is the part of the host's network that matters for a new bridge,
// i.e. the names of the links and the subnets in use.
type HostNetwork struct {
	Links []string
	Used  []netip.Prefix
}

// private holds the address ranges of RFC 1918, the largest first.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
}

// Unused reports whether a subnet overlaps none of the used subnets.
func Unused(used []netip.Prefix, subnet netip.Prefix) bool {
	return !slices.ContainsFunc(used, func(u netip.Prefix) bool {
		// A default route covers everything but occupies no addresses.
		return u.Bits() > 0 && u.Overlaps(subnet)
	})
}

// UnusedSubnet returns the first address of a /24 that overlaps none of the used
// subnets, e.g. 10.184.0.1/24, or false if there is none. The search starts at
// the subnet of begin.
func UnusedSubnet(used []netip.Prefix, begin netip.Addr) (string, bool) {
	for _, r := range private {
		count := uint32(1) << (24 - r.Bits())
		base := toUint(r.Addr())
		start := uint32(0)
		if r.Contains(begin) {
			start = (toUint(begin) - base) >> 8
		}
		for k := range count {
			network := base + (start+k)%count<<8
			subnet := netip.PrefixFrom(fromUint(network), 24)
			if Unused(used, subnet) {
				return netip.PrefixFrom(fromUint(network+1), 24).String(), true
			}
		}
	}
	return "", false
}

func toUint(a netip.Addr) uint32 { b := a.As4(); return binary.BigEndian.Uint32(b[:]) }

func fromUint(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// ReadHostNetwork reads the host's links, IPv4 addresses and routes.
func ReadHostNetwork(p paths.Paths) (HostNetwork, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return HostNetwork{}, fmt.Errorf("cannot read the host's network: %w", err)
	}
	var host HostNetwork
	for _, link := range interfaces {
		host.Links = append(host.Links, link.Name)
		addresses, err := link.Addrs()
		if err != nil {
			continue // the link disappeared meanwhile
		}
		for _, address := range addresses {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() {
				host.Used = append(host.Used, prefix.Masked())
			}
		}
	}
	table, err := os.ReadFile(p.Host("/proc/net/route"))
	if err != nil {
		return HostNetwork{}, fmt.Errorf("cannot read the host's routes: %w", err)
	}
	host.Used = append(host.Used, parseRoutes(string(table))...)
	return host, nil
}

// parseRoutes parses /proc/net/route. The second field is the destination and
// the eighth the mask. Both are hexadecimal numbers in the machine's byte
// order.
func parseRoutes(table string) []netip.Prefix {
	var routes []netip.Prefix
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		destination, err1 := hex.DecodeString(f[1])
		mask, err2 := hex.DecodeString(f[7])
		if err1 != nil || err2 != nil || len(destination) != 4 || len(mask) != 4 {
			continue
		}
		var address [4]byte
		binary.NativeEndian.PutUint32(address[:], binary.BigEndian.Uint32(destination))
		ones := bits.OnesCount32(binary.BigEndian.Uint32(mask))
		routes = append(routes, netip.PrefixFrom(netip.AddrFrom4(address), ones).Masked())
	}
	return routes
}
