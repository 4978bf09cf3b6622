package dhcp

import (
	"net/netip"
	"slices"
	"strings"
)

// passing returns the lines of a lease file without endless leases, leases of
// fixed addresses and leases of addresses outside the ranges.
func (n Network) passing(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[0] != "0" && n.lends(fields[2]) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// lends reports whether dnsmasq leases the address to any client, because the
// address is in a range and not fixed.
func (n Network) lends(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil &&
		slices.ContainsFunc(n.Ranges, func(r Range) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 }) &&
		!slices.ContainsFunc(n.Hosts, func(h Host) bool { return slices.Contains(h.Addresses, a) })
}
