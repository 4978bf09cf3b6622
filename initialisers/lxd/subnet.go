package lxd

import (
	"net/netip"

	"hostler/initialisers"
	"hostler/internal/fault"
)

// freeSubnet returns the first address, e.g. 10.184.0.1/24, of a subnet that
// overlaps no address or route of the host and no network of the daemon. The
// search starts at the dialect's subnet. The lower part of that range comes
// last, because administrators often use the lower numbers.
func freeSubnet(used []netip.Prefix, networks map[string]network, dialect Dialect) (string, error) {
	all := append([]netip.Prefix(nil), used...)
	for _, n := range networks {
		if p, err := netip.ParsePrefix(n.address); err == nil {
			all = append(all, p.Masked())
		}
	}
	if subnet, found := initialisers.UnusedSubnet(all, dialect.subnet); found {
		return subnet, nil
	}
	return "", fault.New(fault.NeedsOperator, "cannot find a free IPv4 subnet for %s's bridge: every private /24 overlaps an address or a route of this host; create the bridge by `%s network create %s0 ipv4.address=ADDRESS/BITS`",
		dialect.Name, dialect.Command, dialect.bridge)
}
