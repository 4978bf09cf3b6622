package hostnet

import (
	"fmt"
	"strings"
)

// Op is what a step does.
type Op string

// The operations.
const (
	MakeBridge  Op = "make-bridge"
	StampBridge Op = "stamp-bridge"
	// ClaimBridge stamps a bridge without an alias that has the step's MAC: the
	// caller knows that it is its own.
	ClaimBridge  Op = "claim-bridge"
	TuneBridge   Op = "tune-bridge" // no spanning tree, no forward delay
	RemoveBridge Op = "remove-bridge"
	SetMAC       Op = "set-mac"
	SetMTU       Op = "set-mtu"
	SetUp        Op = "set-up"
	Enslave      Op = "enslave"
	Release      Op = "release"
	// Rejoin puts a guest's port back under Bridge. Without the port it is
	// success: the guest has ended.
	Rejoin        Op = "rejoin"
	AddAddress    Op = "add-address"
	DeleteAddress Op = "delete-address"
	AddRoute      Op = "add-route"
	DeleteRoute   Op = "delete-route"
	AddNeighbour  Op = "add-neighbour"
	// LearnNeighbours tells Link what Bridge, or the other way round, knows of
	// its neighbours, so that nothing waits for them to be asked again.
	LearnNeighbours Op = "learn-neighbours"
	// SetReversePath sets IPv4's rp_filter.
	SetReversePath Op = "set-reverse-path"
)

// Step is one change of the host. The steps of one UID are carried out in
// order and only as long as they succeed; those of different UIDs do not
// depend on each other.
type Step struct {
	Op Op `json:"op"`
	// UID is the network that the step belongs to.
	UID  string `json:"uid"`
	Link string `json:"link"`
	// Bridge is the master of Enslave, Rejoin and Release, the source of LearnNeighbours.
	Bridge string `json:"bridge,omitempty"`
	// Heir is the link that bears a deleted address from now on.
	Heir      string     `json:"heir,omitempty"`
	Stamp     string     `json:"stamp,omitempty"`
	MAC       string     `json:"mac,omitempty"`
	MTU       int        `json:"mtu,omitempty"`
	Value     uint32     `json:"value,omitempty"`
	Address   *Address   `json:"address,omitempty"`
	Route     *Route     `json:"route,omitempty"`
	Neighbour *Neighbour `json:"neighbour,omitempty"`
	// Guarded says that the host's own connectivity hangs on the step.
	Guarded bool `json:"guarded,omitempty"`
	// Cuts names the links, guests as a rule, that lose their network.
	Cuts []string `json:"cuts,omitempty"`
}

// String says what the step does, for plans and logs.
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
		fmt.Fprintf(&b, "switch the spanning tree of %s off", s.Link)
	case RemoveBridge:
		fmt.Fprintf(&b, "remove bridge %s", s.Link)
	case SetMAC:
		fmt.Fprintf(&b, "set the MAC address of %s to %s", s.Link, s.MAC)
	case SetMTU:
		fmt.Fprintf(&b, "set the MTU of %s to %d", s.Link, s.MTU)
	case SetReversePath:
		fmt.Fprintf(&b, "set the reverse path filter of %s to %s", s.Link, [...]string{"off", "strict", "loose"}[min(s.Value, 2)])
	case SetUp:
		fmt.Fprintf(&b, "bring %s up", s.Link)
	case Enslave:
		fmt.Fprintf(&b, "put %s under %s", s.Link, s.Bridge)
	case Rejoin:
		fmt.Fprintf(&b, "put %s of a guest back under %s", s.Link, s.Bridge)
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
		fmt.Fprintf(&b, "tell %s the neighbours of %s", s.Link, s.Bridge)
	case AddNeighbour:
		fmt.Fprintf(&b, "add neighbour %s to %s", s.Neighbour.Address, s.Link)
	}
	if len(s.Cuts) > 0 {
		fmt.Fprintf(&b, ", which cuts off %s", strings.Join(s.Cuts, ", "))
	}
	return b.String()
}

// String writes the route without its link.
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

// Problem is why a network cannot be, or cannot wholly be, as wanted. Its
// error has a kind of package fault.
type Problem struct {
	UID    string
	Bridge string
	Err    error
}
