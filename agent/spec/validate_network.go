package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// interfacePattern is the form of an interface name. The kernel accepts at most
// 15 bytes and neither slash, colon nor space (IFNAMSIZ in linux/if.h).
const interfacePattern = `[A-Za-z0-9][A-Za-z0-9_.-]{0,14}`

// guestInterfacePattern is the form of the name of a guest's interface. LXD
// refuses names of a single character. A leading letter avoids names that
// programs in the guest interpret differently.
const guestInterfacePattern = `[A-Za-z][A-Za-z0-9_.-]{1,14}`

var guestInterfaceForm = regexp.MustCompile(`^` + guestInterfacePattern + `$`)

var interfaceForm = regexp.MustCompile(`^` + interfacePattern + `$`)

// The bounds of an MTU. minMTU is the minimum of IPv4 hosts (RFC 791),
// minMTUIPv6 that of IPv6 (RFC 8200), and maxMTU the kernel's maximum.
const (
	minMTU     = 576
	minMTUIPv6 = 1280
	maxMTU     = 65535
)

// minBits is the minimum prefix length of a subnet. The largest private ranges,
// 10.0.0.0/8 and fd00::/8, have it.
const minBits = 8

// placed is a value with its path in the document.
type placed[T any] struct {
	path  string
	value T
}

func (c *checker) networks() {
	bridges, members := map[string]string{}, map[string]string{}
	var subnets []placed[netip.Prefix]
	claims := c.others.Claims
	for _, name := range c.names("networks") {
		path := "networks." + name
		n := c.decl.Networks[name]
		c.name(path, name)
		if !c.ok(path) {
			continue
		}
		c.interfaceName(path+".bridge", n.Bridge, "the bridge is missing; add it, like \"bridge: br-lan\"")
		c.once(bridges, claims.bridges, n.Bridge, path+".bridge", "the bridge of")
		six := false
		for i := range n.Addresses {
			at := fmt.Sprintf("%s.addresses[%d]", path, i)
			if p, ok := c.hostAddress(at, n.Addresses[i]); ok {
				subnets = append(subnets, placed[netip.Prefix]{at, p})
				six = six || p.Addr().Is6()
			}
		}
		c.mtu(path+".mtu", n.MTU, six)
		for i, member := range n.Interfaces {
			at := fmt.Sprintf("%s.interfaces[%d]", path, i)
			c.interfaceName(at, member, "")
			c.once(members, claims.members, member, at, "put under the bridge of")
			if member == n.Bridge {
				c.bad(at, "the bridge %s cannot be put under itself; remove it from the list", quote(member))
			}
		}
		c.overInterfaces(path, n)
		for flag, set := range map[string]bool{"nat": n.NAT, "dhcp": n.DHCP} {
			if set && len(n.Addresses) == 0 && c.ok(path+".addresses") {
				c.bad(path+"."+flag, "needs an address on the bridge; add one, like \"addresses: [10.20.0.1/24]\"")
			}
		}
	}
	c.overlaps(subnets)
}

// overInterfaces refuses NAT and DHCP on a bridge with NICs of the host,
// because they would affect all hosts on the network of these NICs.
func (c *checker) overInterfaces(path string, n Network) {
	if len(n.Interfaces) == 0 {
		return
	}
	if n.NAT && c.ok(path+".nat") {
		c.bad(path+".nat", "cannot be combined with interfaces: guests on that bridge are on the network of %s; remove either key", quote(n.Interfaces[0]))
	}
	if n.DHCP && c.ok(path+".dhcp") {
		c.bad(path+".dhcp", "cannot be combined with interfaces: every host on the network of %s would be answered; remove either key", quote(n.Interfaces[0]))
	}
}

func (c *checker) interfaceName(path, name, missing string) {
	switch {
	case !c.ok(path):
	case missing != "" && !c.has(path):
		c.bad(path, "%s", missing)
	case utf8.RuneCountInString(name) > 15:
		c.bad(path, "%s is %d characters long; an interface name has at most 15", quote(name), utf8.RuneCountInString(name))
	case name == "lo" || name == "all" || name == "default":
		c.bad(path, "%s is a reserved name of the kernel; use another name", quote(name))
	case !interfaceForm.MatchString(name):
		c.bad(path, "%s cannot be an interface name; use the letters a to z and A to Z, digits, hyphens, dots and underscores, beginning with a letter or digit", quote(name))
	}
}

// once checks that a word is used once and not claimed by other documents. used
// maps the words of this document to their paths. what describes the use in the
// message, e.g. "the bridge of".
func (c *checker) once(used map[string]string, claimed claimants[string], word, path, what string) {
	if word == "" || !c.ok(path) {
		return
	}
	if first := cmp.Or(used[word], claimantOf(c, claimed, word)); first != "" && objectOf(first) == objectOf(path) {
		c.bad(path, "%s is listed twice (%s too); remove one", quote(word), c.where(first))
		return
	} else if first != "" {
		c.bad(path, "%s is already %s %s (%s); use another", quote(word), what, objectOf(first), c.where(first))
		return
	}
	used[word] = path
}

// objectOf names the object that a path is part of, e.g. network "lan".
func objectOf(path string) string {
	parts := strings.SplitN(path, ".", 3)
	return strings.TrimSuffix(parts[0], "s") + " " + quote(parts[1])
}

func (c *checker) mtu(path string, mtu int, six bool) {
	switch {
	case !c.ok(path) || !c.has(path):
	case mtu < minMTU || mtu > maxMTU:
		c.bad(path, "%d is not an MTU; use %d to %d, usually 1500", mtu, minMTU, maxMTU)
	case six && mtu < minMTUIPv6:
		c.bad(path, "%d is too small for the IPv6 address of this network; use at least %d", mtu, minMTUIPv6)
	}
}

// prefix reads an address with its prefix length. It returns false if s is
// invalid, and reports the error. example and example6 are valid IPv4 and IPv6
// addresses.
func (c *checker) prefix(path, s, example, example6 string) (netip.Prefix, bool) {
	if !c.ok(path) {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && !p.Addr().Is4In6() {
		return p, true
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		c.bad(path, "%s has no prefix length; write it like %s/%d", quote(s), shorten(s), usualBits(a))
		return netip.Prefix{}, false
	}
	if strings.Contains(s, ":") {
		example = example6
	}
	c.bad(path, "%s is not an address with a prefix length%s; write it like %s", quote(s), whyNoPrefix(s), example)
	return netip.Prefix{}, false
}

// usualBits returns the usual prefix length of an address's subnet.
func usualBits(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

var dotted = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// whyNoPrefix says why s is not an address with a prefix length, or returns "".
func whyNoPrefix(s string) string {
	address, bits, _ := strings.Cut(s, "/")
	a, err := netip.ParseAddr(address)
	switch {
	case err != nil && dotted.MatchString(address):
		return ": an IPv4 address has four numbers of 0 to 255, without leading zeros"
	case err != nil:
		return ""
	case a.Zone() != "":
		return ": it cannot have a zone like %" + shorten(a.Zone())
	case dotted.MatchString(bits) && strings.Contains(bits, "."):
		return ": the number of bits follows the slash, not a mask"
	case a.Is4In6():
		return ": it is an IPv4 address in an IPv6 address"
	}
	return fmt.Sprintf(": a number of 0 to %d follows the slash", a.BitLen())
}

// hostAddress reads the address of an interface and checks that a host in the
// subnet can have the address. It returns false if not.
func (c *checker) hostAddress(path, s string) (netip.Prefix, bool) {
	const example, example6 = "10.20.0.1/24", "fd00:20::1/64"
	p, ok := c.prefix(path, s, example, example6)
	if !ok {
		return p, false
	}
	a, private := p.Addr(), example
	if a.Is6() {
		private = example6
	}
	switch {
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Is4() && a.As4()[0] >= 224 || a.Is4() && a.As4()[0] == 0:
		c.bad(path, "%s is not an address that an interface can have; use an address of a private range, like %s", quote(s), private)
	case a.Is6() && a.IsLinkLocalUnicast():
		c.bad(path, "%s is an address that the kernel assigns by itself; use an address of a private range, like %s", quote(s), private)
	case p.Bits() < minBits:
		c.bad(path, "%s covers more than any private range; use a longer prefix, like /%d", quote(s), usualBits(a))
	case p.Bits() > a.BitLen()-2:
		c.bad(path, "%s leaves no room for guests in its subnet; use a shorter prefix, like /%d", quote(s), usualBits(a))
	case a == p.Masked().Addr():
		c.bad(path, "%s is the subnet itself, not an address in it; write an address like %s/%d", quote(s), a.Next(), p.Bits())
	case a == lastAddress(p) && a.Is4():
		c.bad(path, "%s is the broadcast address of its subnet; write another address of it", quote(s))
	default:
		return p, true
	}
	return p, false
}

// lastAddress returns the last address of a subnet, which is the broadcast
// address in IPv4.
func lastAddress(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// overlaps reports subnets that share addresses with each other or with subnets
// of other documents. It sorts the subnets by first address, so a subnet can
// only lie in an earlier one. Hence a comparison with the last wide subnet is
// enough.
func (c *checker) overlaps(subnets []placed[netip.Prefix]) {
	for _, s := range subnets {
		if first, found := c.others.Claims.overlapping(c, s.value); found {
			c.overlap(first, s)
		}
	}
	slices.SortStableFunc(subnets, func(a, b placed[netip.Prefix]) int {
		return cmp.Or(a.value.Masked().Addr().Compare(b.value.Masked().Addr()), a.value.Bits()-b.value.Bits())
	})
	var widest placed[netip.Prefix]
	for _, s := range subnets {
		if widest.path == "" || !widest.value.Overlaps(s.value) {
			widest = s
			continue
		}
		first, second := widest, s
		if c.line(first.path) > c.line(second.path) {
			first, second = second, first
		}
		c.overlap(first, second)
	}
}

func (c *checker) overlap(first, second placed[netip.Prefix]) {
	c.bad(second.path, "the subnet %s overlaps %s of %s (%s); use another range",
		second.value.Masked(), first.value.Masked(), objectOf(first.path), c.where(first.path))
}
