package hostnet

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// The sizes of the kernel's fixed headers (linux/rtnetlink.h, linux/if_addr.h,
// linux/neighbour.h).
const (
	sizeIfInfo = unix.SizeofIfInfomsg
	sizeIfAddr = unix.SizeofIfAddrmsg
	sizeRoute  = unix.SizeofRtMsg
	sizeNeigh  = 12

	flagCloned     = 0x200 // RTM_F_CLONED, set in cache entries
	attributeNHID  = 30    // RTA_NH_ID
	attributeProto = 0x3fff
	bridgeSTP      = 5 // IFLA_BR_STP_STATE
	bridgeDelay    = 1 // IFLA_BR_FORWARD_DELAY
	inetConf       = 1 // IFLA_INET_CONF
	reversePath    = 8 // IPV4_DEVCONF_RP_FILTER, counted from 1
	inet6Conf      = 2 // IFLA_INET6_CONF

	// The places of parameters in IFLA_INET6_CONF (linux/ipv6.h, DEVCONF_*).
	acceptRA      = 3
	autoconf      = 5
	tempAddresses = 10
)

type seenLink struct {
	Link
	master, parent, pair int
}

type seenAddress struct {
	Address
	index int
}

type seenRoute struct {
	Route
	indexes []int
}

type seenNeighbour struct {
	Neighbour
	index int
	state uint16
}

// attributes calls f for each attribute, up to the first malformed attribute.
func attributes(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&attributeProto, b[unix.SizeofRtAttr:length])
		aligned := (length + 3) &^ 3
		if aligned >= len(b) {
			return
		}
		b = b[aligned:]
	}
}

func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

func parseLink(m []byte) (seenLink, bool) {
	if len(m) < sizeIfInfo {
		return seenLink{}, false
	}
	l := seenLink{Link: Link{Index: int(int32(number(m[4:])))}}
	flags := number(m[8:])
	l.Up = flags&unix.IFF_UP != 0
	l.Carrier = flags&unix.IFF_LOWER_UP != 0
	l.Loopback = flags&unix.IFF_LOOPBACK != 0
	parent, elsewhere := 0, false
	attributes(m[sizeIfInfo:], func(kind uint16, value []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = text(value)
		case unix.IFLA_MTU:
			l.MTU = int(number(value))
		case unix.IFLA_ADDRESS:
			l.MAC = net.HardwareAddr(value).String()
		case unix.IFLA_MASTER:
			l.master = int(number(value))
		case unix.IFLA_LINK:
			parent = int(number(value))
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_IFALIAS:
			l.Alias = text(value)
		case unix.IFLA_GROUP:
			l.Group = number(value)
		case unix.IFLA_AF_SPEC:
			l.ReversePath, l.IPv6 = parseReversePath(value), parseIPv6(value)
		case unix.IFLA_LINKINFO:
			parseLinkInfo(value, &l.Link)
		}
	})
	// For other kinds, e.g. veth pairs and tunnels, IFLA_LINK is not a parent.
	if slices.Contains([]string{"vlan", "macvlan", "macvtap", "ipvlan"}, l.Kind) && !elsewhere {
		l.parent = parent
	}
	if l.Kind == "veth" && !elsewhere {
		l.pair = parent
	}
	return l, l.Name != "" && l.Index > 0
}

func parseReversePath(b []byte) (value uint32) {
	attributes(b, func(family uint16, inet []byte) {
		if family != unix.AF_INET {
			return
		}
		attributes(inet, func(kind uint16, conf []byte) {
			if kind == inetConf && len(conf) >= 4*reversePath {
				value = number(conf[4*(reversePath-1):])
			}
		})
	})
	return value
}

func parseIPv6(b []byte) (all *IPv6) {
	attributes(b, func(family uint16, inet []byte) {
		if family != unix.AF_INET6 {
			return
		}
		attributes(inet, func(kind uint16, conf []byte) {
			if kind != inet6Conf || len(conf) < 4*(tempAddresses+1) {
				return
			}
			at := func(place int) int32 { return int32(number(conf[4*place:])) }
			all = &IPv6{AcceptRA: at(acceptRA), Autoconf: at(autoconf), TempAddresses: at(tempAddresses)}
		})
	})
	return all
}

func parseLinkInfo(b []byte, l *Link) {
	attributes(b, func(kind uint16, value []byte) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.Kind = text(value)
		case unix.IFLA_INFO_DATA:
			if l.Kind != "bridge" {
				return
			}
			attributes(value, func(kind uint16, value []byte) {
				if kind == bridgeSTP {
					l.STP = number(value) != 0
				}
			})
		}
	})
}

func parseAddress(m []byte) (seenAddress, bool) {
	if len(m) < sizeIfAddr {
		return seenAddress{}, false
	}
	bits := int(m[1])
	a := seenAddress{index: int(number(m[4:])), Address: Address{Scope: m[3]}}
	flags := uint32(m[2])
	var local, far netip.Addr
	attributes(m[sizeIfAddr:], func(kind uint16, value []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			local = address(value)
		case unix.IFA_ADDRESS:
			far = address(value)
		case unix.IFA_BROADCAST:
			a.Broadcast = address(value)
		case unix.IFA_FLAGS:
			flags = number(value)
		case unix.IFA_CACHEINFO:
			if len(value) >= 8 {
				a.Preferred, a.Valid = number(value), number(value[4:])
			}
		}
	})
	if !local.IsValid() {
		local = far
	} else if far.IsValid() && far != local {
		a.Peer = far
	}
	a.Prefix = netip.PrefixFrom(local, bits)
	a.NoPrefixRoute = flags&unix.IFA_F_NOPREFIXROUTE != 0
	if a.Valid == forever {
		a.Valid, a.Preferred = 0, 0
	}
	return a, a.Prefix.IsValid()
}

func parseRoute(m []byte) (seenRoute, bool) {
	if len(m) < sizeRoute {
		return seenRoute{}, false
	}
	r := seenRoute{Route: Route{TOS: m[3], Table: uint32(m[4]), Protocol: m[5], Scope: m[6], Type: m[7]}}
	flags := number(m[8:])
	r.OnLink = flags&unix.RTNH_F_ONLINK != 0
	destination, bits := netip.Addr{}, int(m[1])
	switch m[0] {
	case unix.AF_INET:
		destination = netip.IPv4Unspecified()
	case unix.AF_INET6:
		destination = netip.IPv6Unspecified()
	default:
		return seenRoute{}, false
	}
	attributes(m[sizeRoute:], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_DST:
			destination = address(value)
		case unix.RTA_GATEWAY:
			r.Gateway = address(value)
		case unix.RTA_PREFSRC:
			r.Source = address(value)
		case unix.RTA_OIF:
			r.indexes = append(r.indexes, int(number(value)))
		case unix.RTA_PRIORITY:
			r.Metric = number(value)
		case unix.RTA_TABLE:
			r.Table = number(value)
		case unix.RTA_METRICS:
			r.Properties = slices.Clone(value)
		case unix.RTA_CACHEINFO:
			// struct rta_cacheinfo: references, last use, lifetime in 1/100 s, error
			if left := int32(number(value[min(8, len(value)):])); left > 0 {
				r.Expires = (uint32(left) + 99) / 100
			}
		case unix.RTA_PREF:
			if len(value) > 0 {
				r.Preference = value[0]
			}
		case unix.RTA_MULTIPATH:
			r.Complex = "several next hops"
			r.indexes = append(r.indexes, nextHops(value)...)
		case unix.RTA_ENCAP:
			r.Complex = "an encapsulation"
		case unix.RTA_VIA:
			r.Complex = "a gateway of another family"
		case attributeNHID:
			r.Complex = "a next hop object"
		case unix.RTA_SRC:
			r.Complex = "a source network"
		}
	})
	r.Destination = netip.PrefixFrom(destination, bits)
	// Skip routes that the kernel derives itself, which are cache entries, its
	// table of local addresses and redirects.
	plain := r.Type == unix.RTN_UNICAST && flags&flagCloned == 0 && r.Table != unix.RT_TABLE_LOCAL && r.Protocol != unix.RTPROT_REDIRECT
	return r, plain && r.Destination.IsValid()
}

// nextHops returns the link indexes of a multipath route.
func nextHops(b []byte) []int {
	var indexes []int
	for len(b) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(b))
		indexes = append(indexes, int(number(b[4:])))
		if length < unix.SizeofRtNexthop || (length+3)&^3 >= len(b) {
			break
		}
		b = b[(length+3)&^3:]
	}
	return indexes
}

func parseNeighbour(m []byte) (seenNeighbour, bool) {
	if len(m) < sizeNeigh || m[0] != unix.AF_INET && m[0] != unix.AF_INET6 {
		return seenNeighbour{}, false
	}
	n := seenNeighbour{index: int(int32(number(m[4:]))), state: binary.NativeEndian.Uint16(m[8:])}
	attributes(m[sizeNeigh:], func(kind uint16, value []byte) {
		switch kind {
		case unix.NDA_DST:
			n.Address = address(value)
		case unix.NDA_LLADDR:
			n.MAC = net.HardwareAddr(value).String()
		}
	})
	return n, n.Address.IsValid()
}
