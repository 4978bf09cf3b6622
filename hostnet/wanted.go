package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Wanted is the whole wanted state: Plan removes bridges stamped with the
// namespace that are not among Bridges.
type Wanted struct {
	Namespace string
	Bridges   []Bridge
	// NICSettings holds the original settings (see Carry) of every host NIC
	// that is or was under one of our bridges. A NIC listed here that no bridge
	// wants gets them back. The caller stores the entry durably before the
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
	// UID is the identity of the network, part of the stamp.
	UID       string
	Addresses []netip.Prefix
	// MTU is in bytes; 0 takes the first port's MTU, or else the kernel's
	// default.
	MTU int
	// Ports are the host NICs to put under the bridge.
	Ports []string
	// Guests are the host's ends of guests' interfaces. Their creators do not
	// put them back after they leave the bridge or after the bridge is deleted.
	Guests []string
}

// NICSettings holds a NIC's own settings, which the bridge above it bears in
// its place.
type NICSettings struct {
	MAC string `json:"mac"`
	MTU int    `json:"mtu"`
	// ReversePath is IPv4's rp_filter: 0 off, 1 strict, 2 loose.
	ReversePath uint32      `json:"reverse-path,omitempty"`
	Addresses   []Address   `json:"addresses,omitempty"`
	Routes      []Route     `json:"routes,omitempty"`
	Neighbours  []Neighbour `json:"neighbours,omitempty"`
}

const stampPrefix = "hostler:"

// Stamp is the alias that a bridge bears.
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

// HalfMadeGroup is the device group of a bridge between its creation and its
// stamping: the creating message can set the group but not the alias. So a
// bridge is recognised as ours even after a crash in between.
func HalfMadeGroup(namespace string) uint32 {
	sum := sha256.Sum256([]byte(stampPrefix + namespace))
	return binary.BigEndian.Uint32(sum[:]) | 1<<31
}

// MAC returns the address of a bridge that has no host NIC to take it from. It
// depends only on the stamp, so guests recognise a recreated bridge.
func MAC(stamp string) string {
	sum := sha256.Sum256([]byte(stamp))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// Carry returns the settings of a NIC that a bridge must bear in its place. It
// leaves out the routes that the kernel adds for the addresses.
func Carry(o Observed, nic string) (NICSettings, error) {
	l, ok := o.Link(nic)
	if !ok {
		return NICSettings{}, missing(nic)
	}
	c := NICSettings{MAC: l.MAC, MTU: l.MTU, ReversePath: l.ReversePath}
	for _, a := range o.AddressesOf(nic) {
		// The kernel's own route for the network has the default metric. A route
		// with another metric is carried explicitly.
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
	// The kernel's IPv6 host route for an address has no network of its own.
	return r.Metric == kernelMetric(r)
}

func kernelMetric(r Route) uint32 {
	if r.Destination.Addr().Is6() {
		return 256 // IP6_RT_PRIO_ADDRCONF
	}
	return 0
}
