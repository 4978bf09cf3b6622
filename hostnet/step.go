package hostnet

import (
	"fmt"
	"strings"
)

// Op is the operation of a step.
type Op string

// The operations of steps.
const (
	MakeBridge  Op = "make-bridge"
	StampBridge Op = "stamp-bridge"
	// ClaimBridge stamps a bridge that has the step's MAC and no alias. The
	// caller knows that the bridge is hostler's.
	ClaimBridge  Op = "claim-bridge"
	TuneBridge   Op = "tune-bridge" // no spanning tree, no forward delay
	RemoveBridge Op = "remove-bridge"
	SetMAC       Op = "set-mac"
	SetMTU       Op = "set-mtu"
	SetUp        Op = "set-up"
	Enslave      Op = "enslave"
	Release      Op = "release"
	// Rejoin puts a guest's port back under Bridge. It succeeds for a missing
	// port, because then the guest has ended.
	Rejoin Op = "rejoin"
	// RemovePair removes both ends of a veth pair. It does nothing if the pair is
	// missing or a guest has the other end.
	RemovePair    Op = "remove-pair"
	AddAddress    Op = "add-address"
	DeleteAddress Op = "delete-address"
	AddRoute      Op = "add-route"
	DeleteRoute   Op = "delete-route"
	AddNeighbour  Op = "add-neighbour"
	// LearnNeighbours copies the neighbours of the link named in Bridge to the
	// link named in Link, so that no traffic waits for their resolution.
	LearnNeighbours Op = "learn-neighbours"
	// SetReversePath sets IPv4's rp_filter.
	SetReversePath Op = "set-reverse-path"
	// SetIPv6 sets the parameters of router advertisements.
	SetIPv6 Op = "set-ipv6"
)

// Step is one change of the host. Steps of the same UID run in order and stop
// at the first failure; steps of different UIDs do not depend on each other.
type Step struct {
	Op Op `json:"op"`
	// UID is the uid of the network that the step belongs to.
	UID  string `json:"uid"`
	Link string `json:"link"`
	// Bridge is the master of Enslave, Rejoin and Release, or the source of
	// LearnNeighbours.
	Bridge string `json:"bridge,omitempty"`
	// Heir is the link that bears the address after DeleteAddress, or "".
	Heir      string     `json:"heir,omitempty"`
	Stamp     string     `json:"stamp,omitempty"`
	MAC       string     `json:"mac,omitempty"`
	MTU       int        `json:"mtu,omitempty"`
	Value     uint32     `json:"value,omitempty"`
	IPv6      *IPv6      `json:"ipv6,omitempty"`
	Address   *Address   `json:"address,omitempty"`
	Route     *Route     `json:"route,omitempty"`
	Neighbour *Neighbour `json:"neighbour,omitempty"`
	// Guarded means that the host's own connectivity depends on the step.
	Guarded bool `json:"guarded,omitempty"`
	// Cuts names the links, usually of guests, that lose their network.
	Cuts []string `json:"cuts,omitempty"`
}

// String describes the step for plans and logs.
func (s Step) String() string {
	var b strings.Builder
	switch s.Op {
	case MakeBridge:
		fmt.Fprintf(&b, "make bridge %s", s.Link)
	case StampBridge:
		fmt.Fprintf(&b, "stamp bridge %s", s.Link)
	case ClaimBridge:
		fmt.Fprintf(&b, "stamp bridge %s, which the host has made again", s.Link)
	case TuneBridge:
		fmt.Fprintf(&b, "disable the spanning tree of %s", s.Link)
	case RemoveBridge:
		fmt.Fprintf(&b, "remove bridge %s", s.Link)
	case SetMAC:
		fmt.Fprintf(&b, "set the MAC address of %s to %s", s.Link, s.MAC)
	case SetMTU:
		fmt.Fprintf(&b, "set the MTU of %s to %d", s.Link, s.MTU)
	case SetReversePath:
		fmt.Fprintf(&b, "set the reverse path filter of %s to %s", s.Link, [...]string{"off", "strict", "loose"}[min(s.Value, 2)])
	case SetIPv6:
		fmt.Fprintf(&b, "set accept_ra of %s to %d, autoconf to %d, use_tempaddr to %d", s.Link, s.IPv6.AcceptRA, s.IPv6.Autoconf, s.IPv6.TempAddresses)
	case SetUp:
		fmt.Fprintf(&b, "bring %s up", s.Link)
	case Enslave:
		fmt.Fprintf(&b, "put %s under %s", s.Link, s.Bridge)
	case Rejoin:
		fmt.Fprintf(&b, "put %s of a guest back under %s", s.Link, s.Bridge)
	case RemovePair:
		fmt.Fprintf(&b, "remove %s, whose other end no guest has", s.Link)
	case Release:
		fmt.Fprintf(&b, "take %s from %s", s.Link, s.Bridge)
	case AddAddress:
		fmt.Fprintf(&b, "add address %s to %s", s.Address.Prefix, s.Link)
	case DeleteAddress:
		fmt.Fprintf(&b, "delete address %s from %s", s.Address.Prefix, s.Link)
	case AddRoute:
		fmt.Fprintf(&b, "add route to %s over %s", s.Route, s.Link)
	case DeleteRoute:
		fmt.Fprintf(&b, "delete route to %s over %s", s.Route, s.Link)
	case LearnNeighbours:
		fmt.Fprintf(&b, "copy to %s the neighbours of %s", s.Link, s.Bridge)
	case AddNeighbour:
		fmt.Fprintf(&b, "add neighbour %s to %s", s.Neighbour.Address, s.Link)
	}
	if len(s.Cuts) > 0 {
		fmt.Fprintf(&b, ", which cuts off %s", strings.Join(s.Cuts, ", "))
	}
	return b.String()
}

// String formats the route without its link.
func (r Route) String() string {
	s := r.Destination.String()
	if r.Gateway.IsValid() {
		s += " by " + r.Gateway.String()
	}
	if r.Metric != 0 {
		s += fmt.Sprintf(" metric %d", r.Metric)
	}
	return s
}

// Problem is the reason why a network cannot be brought, wholly or partly, to
// its wanted state. Its error has a kind of package fault.
type Problem struct {
	UID string
	Err error
}
