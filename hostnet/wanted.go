package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Wanted is the whole wanted state. Plan removes bridges stamped with the
// namespace that are not among Bridges.
type Wanted struct {
	Namespace string
	Bridges   []Bridge
	// NICSettings holds the original settings (see Carry) of every host NIC that
	// is or was under one of our bridges. A NIC listed here that no bridge wants
	// gets its settings back. The caller stores the entry durably before the
	// first step, and drops it when a plan without the NIC is empty.
	NICSettings map[string]NICSettings
	// NICs names links that are known to belong to the host, whatever their
	// kind. If such a NIC is under a bridge of ours without a record, it gets
	// the undeclared addresses and routes of the bridge.
	NICs []string
}

// Bridge is a wanted bridge.
type Bridge struct {
	Name string
	// UID is the uid of the network, which is part of the stamp.
	UID       string
	Addresses []netip.Prefix
	// Former are addresses that were declared for the bridge before. Plan deletes
	// them from a bridge with Ports, whose other addresses are not ours.
	Former []netip.Prefix
	// MTU is in bytes; 0 means the MTU of the first port, or the kernel's default
	// if there is no port.
	MTU int
	// Ports are the host NICs to put under the bridge.
	Ports []string
	// Guests are the host's ends of guests' interfaces. Plan puts them back under
	// the bridge, because their creators do not after an interface has left the
	// bridge or the bridge was deleted.
	Guests []string
}

// NICSettings holds a NIC's own settings, which the bridge over the NIC bears
// instead.
type NICSettings struct {
	MAC string `json:"mac"`
	MTU int    `json:"mtu"`
	// ReversePath is IPv4's rp_filter: 0 off, 1 strict, 2 loose.
	ReversePath uint32 `json:"reverse-path,omitempty"`
	// IPv6 is nil in records of earlier versions, and for a bridge that keeps the
	// kernel's defaults.
	IPv6       *IPv6       `json:"ipv6,omitempty"`
	Addresses  []Address   `json:"addresses,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
	Neighbours []Neighbour `json:"neighbours,omitempty"`
}

const stampPrefix = "hostler:"

// Stamp returns the alias that marks a bridge as ours.
func Stamp(namespace, uid string) string { return stampPrefix + namespace + ":" + uid }

// ParseStamp splits an alias into namespace and uid.
func ParseStamp(alias string) (namespace, uid string, ok bool) {
	rest, ok := strings.CutPrefix(alias, stampPrefix)
	if !ok {
		return "", "", false
	}
	namespace, uid, ok = strings.Cut(rest, ":")
	return namespace, uid, ok && namespace != "" && uid != ""
}

// halfMadeGroup is the device group of a bridge between its creation and its
// stamping. The creating message can set the group but not the alias. The group
// identifies the bridge as ours even after a crash in between.
func halfMadeGroup(namespace string) uint32 {
	sum := sha256.Sum256([]byte(stampPrefix + namespace))
	return binary.BigEndian.Uint32(sum[:]) | 1<<31
}

// bridgeMAC returns the MAC address of a bridge without a host NIC. The address
// depends only on the stamp, so guests recognise a recreated bridge.
func bridgeMAC(stamp string) string {
	sum := sha256.Sum256([]byte(stamp))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// Carry returns the settings of a NIC that a bridge over the NIC must bear
// instead. It leaves out the routes that the kernel adds for the addresses.
func Carry(o Observed, nic string) (NICSettings, error) {
	l, ok := o.Link(nic)
	if !ok {
		return NICSettings{}, missing(nic)
	}
	c := NICSettings{MAC: l.MAC, MTU: l.MTU, ReversePath: l.ReversePath, IPv6: l.IPv6}
	for _, a := range o.AddressesOf(nic) {
		// The kernel's own route for the network has the default metric. A route
		// with another metric is among the carried routes.
		for _, r := range o.RoutesOf(nic) {
			if r.Protocol == protoKernel && r.Destination == a.Prefix.Masked() && r.Metric != kernelMetric(r) {
				a.NoPrefixRoute = true
			}
		}
		a.Link = ""
		c.Addresses = append(c.Addresses, a)
	}
	for _, r := range o.RoutesOf(nic) {
		if r.Complex != "" {
			return NICSettings{}, refuse("the route to %s over %s has %s, which cannot be moved to a bridge", r.Destination, nic, r.Complex)
		}
		if r.Protocol == unix.RTPROT_RA && l.IPv6 != nil && l.IPv6.AcceptRA == 0 {
			// The NIC's manager, e.g. systemd-networkd, handles the advertisements. The
			// kernel must renew the route until the manager serves the bridge.
			c.IPv6 = nil
		}
		if !c.makes(r) {
			r.Link = ""
			c.Routes = append(c.Routes, r)
		}
	}
	for _, n := range o.Neighbours {
		if n.Link == nic {
			n.Link = ""
			c.Neighbours = append(c.Neighbours, n)
		}
	}
	return c, nil
}

// Leaving returns the settings that a NIC takes along when it leaves a bridge. had
// are its recorded settings, and declared are the addresses that were declared for
// the bridge. Recorded settings that the bridge no longer bears are left out,
// because the NIC's manager or another program has removed them. A NIC with the
// bridge's MAC address also takes the settings that others have added to the bridge,
// e.g. leases, but not those of the other NICs, whose recorded settings are others.
func Leaving(had NICSettings, others []NICSettings, o Observed, bridge string, declared []netip.Prefix) NICSettings {
	now, err := Carry(o, bridge)
	if l, _ := o.Link(bridge); err != nil || !l.Up {
		return had
	}
	var keeps []Address
	for _, a := range now.Addresses {
		recorded := slices.ContainsFunc(had.Addresses, a.same)
		added := now.MAC == had.MAC && !slices.Contains(declared, a.Prefix) && !a.Prefix.Addr().IsLinkLocalUnicast() &&
			!slices.ContainsFunc(others, func(other NICSettings) bool { return slices.ContainsFunc(other.Addresses, a.same) })
		if recorded || added {
			keeps = append(keeps, a)
		}
	}
	// A bridge has its own link-local address.
	keeps = append(keeps, filter(had.Addresses, func(a Address) bool {
		return a.Prefix.Addr().IsLinkLocalUnicast() && !slices.ContainsFunc(keeps, a.same)
	})...)
	had.Addresses = keeps
	had.Routes = filter(now.Routes, func(r Route) bool {
		return slices.ContainsFunc(had.Routes, r.same) || now.MAC == had.MAC && had.reaches(r) &&
			!slices.ContainsFunc(others, func(other NICSettings) bool { return slices.ContainsFunc(other.Routes, r.same) })
	})
	return had
}

// reaches reports whether a link with only these addresses can have the route.
func (c NICSettings) reaches(r Route) bool {
	source := !r.Source.IsValid() || slices.ContainsFunc(c.Addresses, func(a Address) bool { return a.Prefix.Addr() == r.Source })
	return source && (!r.Gateway.IsValid() || r.OnLink || r.Gateway.IsLinkLocalUnicast() ||
		slices.ContainsFunc(c.Addresses, func(a Address) bool { return a.Prefix.Contains(r.Gateway) }))
}

// makes reports whether the kernel adds the route by itself with an address.
func (c NICSettings) makes(r Route) bool {
	if r.Protocol != protoKernel {
		return false
	}
	if r.Destination.Addr().IsLinkLocalUnicast() && r.Destination.Addr().Is6() {
		return true
	}
	for _, a := range c.Addresses {
		network := a.Prefix.Masked()
		if a.Peer.IsValid() {
			network = netip.PrefixFrom(a.Peer, a.Prefix.Bits()).Masked()
		}
		if network == r.Destination {
			return !a.NoPrefixRoute
		}
	}
	// The kernel's IPv6 host route for an address is in no address's network. It
	// has the default metric.
	return r.Metric == kernelMetric(r)
}

func kernelMetric(r Route) uint32 {
	if r.Destination.Addr().Is6() {
		return 256 // IP6_RT_PRIO_ADDRCONF
	}
	return 0
}
