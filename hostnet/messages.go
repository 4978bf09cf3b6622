package hostnet

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func numberAttribute(kind int, n uint32) nl.NetlinkRequestData {
	return nl.NewRtAttr(kind, nl.Uint32Attr(n))
}

func textAttribute(kind int, s string) nl.NetlinkRequestData {
	return nl.NewRtAttr(kind, nl.ZeroTerminated(s))
}

// bridgeInfo returns the attribute that sets the listed numeric attributes of a
// bridge to 0.
func bridgeInfo(zero ...int) nl.NetlinkRequestData {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(unix.IFLA_INFO_DATA, nil)
	for _, kind := range zero {
		data.AddRtAttr(kind, nl.Uint32Attr(0))
	}
	return info
}

// reversePathInfo returns the attribute that sets the IPv4 rp_filter of a link.
func reversePathInfo(value uint32) nl.NetlinkRequestData {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil).AddRtAttr(reversePath, nl.Uint32Attr(value))
	return spec
}

// newBridge returns the parts of the message that creates a bridge.
func newBridge(name, mac string, mtu int, group uint32) ([]nl.NetlinkRequestData, error) {
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	parts := []nl.NetlinkRequestData{
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		textAttribute(unix.IFLA_IFNAME, name),
		nl.NewRtAttr(unix.IFLA_ADDRESS, hardware),
		numberAttribute(unix.IFLA_GROUP, group),
		// With the default forward delay of 15 s, a new port carries no traffic
		// for 30 s.
		bridgeInfo(bridgeSTP, bridgeDelay),
	}
	if mtu != 0 {
		parts = append(parts, numberAttribute(unix.IFLA_MTU, uint32(mtu)))
	}
	return parts, nil
}

func addressMessage(index int, a Address) []nl.NetlinkRequestData {
	local := a.Prefix.Addr()
	family, flags := unix.AF_INET, uint32(0)
	if local.Is6() {
		// The address is known to belong to this host, so skip duplicate address
		// detection, which would make the address unusable for a second.
		family, flags = unix.AF_INET6, unix.IFA_F_NODAD
	}
	if a.NoPrefixRoute {
		flags |= unix.IFA_F_NOPREFIXROUTE
	}
	header := nl.NewIfAddrmsg(family)
	header.Index, header.Prefixlen, header.Scope = uint32(index), uint8(a.Prefix.Bits()), a.Scope
	far := local
	if a.Peer.IsValid() {
		far = a.Peer
	}
	parts := []nl.NetlinkRequestData{
		header,
		nl.NewRtAttr(unix.IFA_LOCAL, local.AsSlice()),
		nl.NewRtAttr(unix.IFA_ADDRESS, far.AsSlice()),
		numberAttribute(unix.IFA_FLAGS, flags),
	}
	if a.Broadcast.IsValid() {
		parts = append(parts, nl.NewRtAttr(unix.IFA_BROADCAST, a.Broadcast.AsSlice()))
	}
	if !a.Permanent() {
		lifetimes := make([]byte, unix.SizeofIfaCacheinfo) // preferred, valid and two timestamps of the kernel
		binary.NativeEndian.PutUint32(lifetimes, a.Preferred)
		binary.NativeEndian.PutUint32(lifetimes[4:], a.Valid)
		parts = append(parts, nl.NewRtAttr(unix.IFA_CACHEINFO, lifetimes))
	}
	return parts
}

// broadcast returns the last address of an IPv4 network, or an invalid address
// for IPv6 and for networks too small to have a broadcast address.
func broadcast(network netip.Prefix) netip.Addr {
	if !network.Addr().Is4() || network.Bits() > 30 {
		return netip.Addr{}
	}
	b := network.Addr().As4()
	last := binary.BigEndian.Uint32(b[:]) | ^uint32(0)>>network.Bits()
	binary.BigEndian.PutUint32(b[:], last)
	return netip.AddrFrom4(b)
}

func routeMessage(index int, r Route) []nl.NetlinkRequestData {
	family := unix.AF_INET
	if r.Destination.Addr().Is6() {
		family = unix.AF_INET6
	}
	header := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(family), Dst_len: uint8(r.Destination.Bits()), Tos: r.TOS,
		Table: unix.RT_TABLE_UNSPEC, Protocol: r.Protocol, Scope: r.Scope, Type: r.Type,
	}}
	if r.OnLink {
		header.Flags |= unix.RTNH_F_ONLINK
	}
	parts := []nl.NetlinkRequestData{
		header,
		numberAttribute(unix.RTA_TABLE, r.Table),
		numberAttribute(unix.RTA_OIF, uint32(index)),
	}
	if r.Destination.Bits() > 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_DST, r.Destination.Addr().AsSlice()))
	}
	if r.Gateway.IsValid() {
		parts = append(parts, nl.NewRtAttr(unix.RTA_GATEWAY, r.Gateway.AsSlice()))
	}
	if r.Source.IsValid() {
		parts = append(parts, nl.NewRtAttr(unix.RTA_PREFSRC, r.Source.AsSlice()))
	}
	if r.Metric != 0 {
		parts = append(parts, numberAttribute(unix.RTA_PRIORITY, r.Metric))
	}
	if len(r.Properties) > 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_METRICS, r.Properties))
	}
	if r.Expires != 0 {
		parts = append(parts, numberAttribute(unix.RTA_EXPIRES, r.Expires))
	}
	if r.Preference != 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_PREF, []byte{r.Preference}))
	}
	return parts
}

// neighbourMessage is the kernel's struct ndmsg.
type neighbourMessage struct {
	family uint8
	index  int32
	state  uint16
	flags  uint8
}

func (m *neighbourMessage) Len() int { return sizeNeigh }

func (m *neighbourMessage) Serialize() []byte {
	b := make([]byte, sizeNeigh)
	b[0] = m.family
	binary.NativeEndian.PutUint32(b[4:], uint32(m.index))
	binary.NativeEndian.PutUint16(b[8:], m.state)
	b[10] = m.flags
	return b
}

func neighbourParts(index int, n Neighbour, state uint16) ([]nl.NetlinkRequestData, error) {
	hardware, err := net.ParseMAC(n.MAC)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET
	if n.Address.Is6() {
		family = unix.AF_INET6
	}
	return []nl.NetlinkRequestData{
		&neighbourMessage{family: uint8(family), index: int32(index), state: state},
		nl.NewRtAttr(unix.NDA_DST, n.Address.AsSlice()),
		nl.NewRtAttr(unix.NDA_LLADDR, hardware),
	}, nil
}
