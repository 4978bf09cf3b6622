package firewall

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A rule's comment consists of commentPrefix, the rule's owner, # and the
// beginning of a hash over the rule. The hash reveals a changed rule when the
// table is read back.
const (
	commentPrefix = "hostler:"
	hashDigits    = 12
)

// chain is a base chain of the table with its rules.
type chain struct {
	family     string // of the chain's table, inet or bridge
	name, hook string
	rules      []string // each with its comment
	comments   []string
}

// table returns the chains for the rules. The result does not depend on the
// order of the input. A chain name must not be an nft keyword such as
// masquerade.
func table(r Rules) []chain {
	spoof := chain{family: inet, name: "guard", hook: "type filter hook prerouting priority raw"}
	dnat := chain{family: inet, name: "publish", hook: "type nat hook prerouting priority dstnat"}
	local := chain{family: inet, name: "publish_local", hook: "type nat hook output priority -100"}
	input := chain{family: inet, name: "to_host", hook: "type filter hook input priority filter"}
	forward := chain{family: inet, name: "through", hook: "type filter hook forward priority filter"}
	held := chain{family: bridge, name: "ports", hook: "type filter hook prerouting priority filter"}
	source := chain{family: inet, name: "hide", hook: "type nat hook postrouting priority srcnat"}

	pairs(&spoof, r.Guests)
	ports(&held, r)
	networks := sorted(r.Networks)
	for _, n := range networks {
		// Published ports are reachable at 127.0.0.1 only with route_localnet. With
		// this setting guests could send to 127.0.0.0/8 too, so drop such packets.
		spoof.add(n.Owner, `iifname %q ip daddr 127.0.0.0/8 drop`, n.Bridge)
		bounds(&spoof, n)
	}
	for _, p := range sorted(r.Publish) {
		publish(&dnat, &local, p)
	}
	for _, n := range networks {
		toHost(&input, n)
		fromGuests(&forward, n)
	}
	for _, i := range sorted(r.Ingress) {
		ingress(&forward, i)
	}
	for _, n := range networks {
		toGuests(&forward, n)
		masquerade(&source, n)
	}
	chains := []chain{spoof, dnat, local, input, forward, source}
	if len(held.rules) > 0 {
		chains = append(chains, held)
	}
	return chains
}

// sorted returns a copy of the list in a fixed order.
func sorted[T any](list []T) []T {
	type keyed struct {
		key  string
		item T
	}
	all := make([]keyed, len(list))
	for i, item := range list {
		all[i] = keyed{fmt.Sprintf("%+v", item), item}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	ordered := make([]T, len(list))
	for i := range all {
		ordered[i] = all[i].item
	}
	return ordered
}

func (c *chain) add(owner, format string, args ...any) {
	rule := fmt.Sprintf(format, args...)
	sum := sha256.Sum256([]byte(c.name + "\n" + owner + "\n" + rule))
	comment := commentPrefix + owner + "#" + hex.EncodeToString(sum[:])[:hashDigits]
	c.rules = append(c.rules, fmt.Sprintf("%s comment %q", rule, comment))
	c.comments = append(c.comments, comment)
}

func version(a netip.Addr) (ip, proto string) {
	if a.Is4() {
		return "ip", "ipv4"
	}
	return "ip6", "ipv6"
}

// bounds drops packets whose source address is outside the network.
func bounds(c *chain, n Network) {
	for _, four := range []bool{true, false} {
		own, ip := []string{"0.0.0.0"}, "ip"
		if !four {
			own, ip = []string{"::", "fe80::/10"}, "ip6"
		}
		subnets := ofVersion(n.Subnets, four)
		if len(n.Subnets) == 0 {
			continue // a host NIC under the bridge may lead to any address
		}
		for _, s := range subnets {
			own = append(own, s.Masked().String())
		}
		c.add(n.Owner, `iifname %q %s saddr != { %s } drop`, n.Bridge, ip, strings.Join(own, ", "))
	}
}

// sources returns the match for the addresses that may connect, or "" if any
// address may. no is true if no address of the IP version may connect.
func sources(prefixes []netip.Prefix, four bool) (match string, no bool) {
	if len(prefixes) == 0 {
		return "", false
	}
	var all []string
	for _, p := range ofVersion(prefixes, four) {
		if p.Bits() == 0 {
			return "", false
		}
		all = append(all, p.Masked().String())
	}
	if len(all) == 0 {
		return "", true
	}
	slices.Sort(all)
	ip := "ip"
	if !four {
		ip = "ip6"
	}
	return fmt.Sprintf("%s saddr { %s } ", ip, strings.Join(slices.Compact(all), ", ")), false
}

func publish(dnat, local *chain, p Publish) {
	ip, proto := version(p.Address)
	from, no := sources(p.Sources, p.Address.Is4())
	if no {
		return
	}
	to := netip.AddrPortFrom(p.Address, p.Port)
	match := fmt.Sprintf("fib daddr type local %s dport %d dnat %s to %s", p.Protocol, p.HostPort, ip, to)
	dnat.add(p.Owner, "meta nfproto %s %s%s", proto, from, match)
	// Connections of the host itself are always allowed, because it can reach the
	// guest directly anyway.
	local.add(p.Owner, "meta nfproto %s %s", proto, match)
}

func toHost(c *chain, n Network) {
	c.add(n.Owner, `iifname %q ct state established,related accept`, n.Bridge)
	if n.HostAccess {
		return
	}
	c.add(n.Owner, `iifname %q meta l4proto { icmp, ipv6-icmp } accept`, n.Bridge)
	if n.Services {
		c.add(n.Owner, `iifname %q udp dport { 53, 67, 547 } accept`, n.Bridge)
		c.add(n.Owner, `iifname %q tcp dport 53 accept`, n.Bridge)
	}
	c.add(n.Owner, `iifname %q drop`, n.Bridge)
}

// fromGuests adds the rules for packets from guests. It accepts no packets. Its
// rules precede the rules that accept packets to guests, because a packet from
// one bridge to another must pass both.
func fromGuests(c *chain, n Network) {
	if !n.Forward {
		c.add(n.Owner, `iifname %q oifname != %q ct state new drop`, n.Bridge, n.Bridge)
	}
}

func ingress(c *chain, i Ingress) {
	ip, _ := version(i.Address)
	from, no := sources(i.Sources, i.Address.Is4())
	if no {
		return
	}
	what := "meta l4proto { icmp, ipv6-icmp }"
	if i.Protocol != "icmp" {
		what = fmt.Sprintf("%s dport %d", i.Protocol, i.First)
		if i.Last > i.First {
			what += fmt.Sprintf("-%d", i.Last)
		}
	}
	c.add(i.Owner, `oifname %q %s%s daddr %s %s accept`, i.Bridge, from, ip, i.Address, what)
}

func toGuests(c *chain, n Network) {
	if n.Forward && !n.NAT {
		return
	}
	c.add(n.Owner, `oifname %q iifname != %q ct state new ct status & dnat == 0 drop`, n.Bridge, n.Bridge)
}

func masquerade(c *chain, n Network) {
	for _, s := range n.Subnets {
		ip, _ := version(s.Addr())
		if n.NAT {
			c.add(n.Owner, `oifname != %q %s saddr %s %s daddr != %s masquerade`, n.Bridge, ip, s.Masked(), ip, s.Masked())
		}
		// If a guest reaches a neighbour through the host's published port, the
		// answer must pass the host too.
		c.add(n.Owner, `oifname %q %s saddr %s %s daddr %s ct status dnat masquerade`, n.Bridge, ip, s.Masked(), ip, s.Masked())
	}
	c.add(n.Owner, `oifname %q ip saddr 127.0.0.0/8 ct status dnat masquerade`, n.Bridge)
}

// script returns the transaction that replaces the tables of the given families
// with the chains.
func script(name string, families []string, chains []chain) string {
	var b strings.Builder
	for _, family := range families {
		// Add the table first, because the deletion of an absent table fails.
		fmt.Fprintf(&b, "add table %s %s\ndelete table %s %s\n", family, name, family, name)
	}
	for _, family := range []string{inet, bridge} {
		if !slices.ContainsFunc(chains, func(c chain) bool { return c.family == family }) {
			continue
		}
		fmt.Fprintf(&b, "table %s %s {\n", family, name)
		for _, c := range chains {
			if c.family != family {
				continue
			}
			fmt.Fprintf(&b, "\tchain %s {\n\t\t%s; policy accept;\n", c.name, c.hook)
			for _, rule := range c.rules {
				fmt.Fprintf(&b, "\t\t%s\n", rule)
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}
