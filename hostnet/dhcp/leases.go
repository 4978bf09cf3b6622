package dhcp

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Lease is an address leased by dnsmasq.
type Lease struct {
	Address netip.Addr
	// MAC is empty for IPv6, where leases use another identifier (DUID).
	MAC string
	// Name is the name that the guest claims. If it is no valid host name, it is
	// quoted for display. It proves nothing.
	Name string
	// Expires is zero for a lease that never expires.
	Expires time.Time
}

// ParseLeases reads dnsmasq's lease file. It skips malformed lines, because
// guests influence the content.
func ParseLeases(data []byte) []Lease {
	var all []Lease
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 5 {
			continue // e.g. "duid …" has two fields
		}
		seconds, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || seconds < 0 || seconds > 1<<40 {
			continue
		}
		address, err := netip.ParseAddr(fields[2])
		if err != nil || address.Zone() != "" {
			continue
		}
		l := Lease{Address: address}
		if mac := strings.ToLower(fields[1]); goodMAC.MatchString(mac) && address.Is4() {
			l.MAC = mac
		}
		if seconds > 0 {
			l.Expires = time.Unix(seconds, 0)
		}
		switch name := fields[3]; {
		case name == "*":
		case goodDomain.MatchString(name):
			l.Name = name
		default:
			l.Name = strconv.QuoteToASCII(name)
		}
		all = append(all, l)
	}
	return all
}

// passing returns the lines of a lease file without the leases of fixed
// addresses and of addresses outside the ranges.
func (n Network) passing(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[0] != "0" && n.lends(fields[2]) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// lends reports whether an address is leased to any client.
func (n Network) lends(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil &&
		slices.ContainsFunc(n.Ranges, func(r Range) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 }) &&
		!slices.ContainsFunc(n.Hosts, func(h Host) bool { return slices.Contains(h.Addresses, a) })
}
