package firewall

import (
	"fmt"
	"strings"
)

// The families of the tables. What goes from guest to guest on one bridge is
// seen in the bridge's only.
const (
	inet   = "inet"
	bridge = "bridge"
)

// port drops frames that come in by a guest's port and bear another's MAC or
// IP address, in what they are and in what they say of neighbours, and, of a
// guest with addresses, whatever is neither IP nor ARP and what makes it a
// router.
func port(c *chain, g Guest) {
	add := func(format string, args ...any) {
		c.add(g.Owner, `iifname %q %s drop`, g.Port, fmt.Sprintf(format, args...))
	}
	add("ether saddr != %s", g.MAC)
	add("arp saddr ether != %s", g.MAC)
	if len(g.Addresses) == 0 {
		return
	}
	four, six, targets := []string{"0.0.0.0"}, []string{"::", "fe80::/10"}, []string{}
	for _, a := range g.Addresses {
		if a.Is4() {
			four = append(four, a.String())
			continue
		}
		six = append(six, a.String())
		bytes := a.As16()
		targets = append(targets, fmt.Sprintf("@th,64,128 != 0x%x", bytes[:]))
	}
	add("ether type != { ip, ip6, arp }")
	add("arp saddr ip != { %s }", strings.Join(four, ", "))
	add("ip saddr != { %s }", strings.Join(four, ", "))
	add("ip6 saddr != { %s }", strings.Join(six, ", "))
	add("icmpv6 type nd-router-advert")
	// The address that it says to have comes after 8 bytes (RFC 4861, 4.4);
	// 0x3fa are the first bits of fe80::/10.
	add("icmpv6 type nd-neighbor-advert @th,64,10 != 0x3fa %s", strings.Join(targets, " "))
}
