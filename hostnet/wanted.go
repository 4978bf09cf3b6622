package hostnet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Wanted is the whole wanted state: bridges stamped with the namespace that
// are not among Bridges are removed.
type Wanted struct {
	Namespace string
	Bridges   []Bridge
	// Carried holds, for every host NIC that is or was under one of our
	// bridges, what it had before (see Carry). A NIC in here that no bridge
	// wants gets it back. The caller keeps the entry durably from before the
	// first step until a plan without the NIC is empty.
	Carried map[string]Carried
	// NICs are known to be the host's, whatever their kind: where such a one is
	// under a bridge of ours and in no record, it gets what the bridge bears.
	NICs []string
}

// Bridge is a wanted bridge.
type Bridge struct {
	Name string
	// UID is the identity of the network, part of the stamp.
	UID       string
	Addresses []netip.Prefix
	// MTU in bytes; 0 takes the first port's, or the kernel's default.
	MTU int
	// Ports are the host NICs to put under the bridge.
	Ports []string
	// Guests are the host's ends of guests' interfaces. Whoever made them puts
	// none back that is taken off its bridge, or whose bridge is deleted.
	Guests []string
}

// Carried is what a NIC had of its own, which the bridge above it bears in
// its place.
type Carried struct {
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

// ParseStamp takes an alias apart.
func ParseStamp(alias string) (namespace, uid string, ok bool) {
	rest, ok := strings.CutPrefix(alias, stampPrefix)
	if !ok {
		return "", "", false
	}
	namespace, uid, ok = strings.Cut(rest, ":")
	return namespace, uid, ok && namespace != "" && uid != ""
}

// HalfMadeGroup is the device group that a bridge has from its creation, which
// can set the group but not the alias, until it is stamped. So a bridge
// without its stamp is known to be ours after a crash in between.
func HalfMadeGroup(namespace string) uint32 {
	sum := sha256.Sum256([]byte(stampPrefix + namespace))
	return binary.BigEndian.Uint32(sum[:]) | 1<<31
}

// MAC returns the address of a bridge that has no host NIC to take it from.
// It depends on the stamp only, so a bridge made anew is known to its guests.
func MAC(stamp string) string {
	sum := sha256.Sum256([]byte(stamp))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// Carry returns what a NIC bears that a bridge must bear in its place. The
// routes that the kernel makes for an address follow the address.
func Carry(o Observed, nic string) (Carried, error) {
	l, ok := o.Link(nic)
	if !ok {
		return Carried{}, missing(nic)
	}
	c := Carried{MAC: l.MAC, MTU: l.MTU, ReversePath: l.ReversePath}
	for _, a := range o.AddressesOf(nic) {
		// The kernel's own route for the network has the default metric. Where
		// there is another it must be kept, so it is carried by itself.
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
			return Carried{}, refuse("the route to %s over %s has %s, which cannot be moved to a bridge", r.Destination, nic, r.Complex)
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

// makes says that the kernel makes the route by itself with an address.
func (c Carried) makes(r Route) bool {
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
	// A host route that IPv6 makes for an address has no network of its own.
	return r.Metric == kernelMetric(r)
}

func kernelMetric(r Route) uint32 {
	if r.Destination.Addr().Is6() {
		return 256 // IP6_RT_PRIO_ADDRCONF
	}
	return 0
}
