package dhcp

import (
	"net/netip"
	"slices"
	"strings"
)

// passing returns the lines of a lease file without the leases of fixed
// addresses and of addresses outside the ranges.
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

// lends reports whether an address is leased to any client.
func (n Network) lends(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil &&
		slices.ContainsFunc(n.Ranges, func(r Range) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 }) &&
		!slices.ContainsFunc(n.Hosts, func(h Host) bool { return slices.Contains(h.Addresses, a) })
}
