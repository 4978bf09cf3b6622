// Package networkprovisioner keeps the host's declared networks as declared:
// bridges with their addresses, forwarding, the firewall, DHCP and the
// addresses that machines are given. It reads all records and, in one dump
// each, what is on the host, decides in a pure function what separates them,
// and carries that out.
package networkprovisioner

import (
	"net/netip"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/sysctl"
)

// The states of a network.
const (
	statePending = "pending"
	stateReady   = "ready"
	stateError   = "error"
	stateDying   = "dying"
)

// Network is one network's record, decoded.
type Network struct {
	Name, UID  string
	Life       state.Life
	Generation int64
	Record     spec.NetworkRecord
	Status     spec.NetworkStatus
	// left are the keys of Status.Guests that belong to instances without a
	// machine; see withLeft.
	left map[string]bool
}

// Guest is what of a machine bears on networks.
type Guest struct {
	Name, UID string
	Type      spec.ContainerType
	Dying     bool
	NICs      map[string]spec.NIC
	Publish   []spec.Publish
	// Ports are the host's ends of its interfaces.
	Ports map[string]spec.Port
	// Instance: one is recorded.
	Instance bool
	// Settled: its instance is as the record says, or there is none.
	Settled bool
	// Addresses are those that the hypervisor tells of.
	Addresses []netip.Addr
}

// Desired is everything that is declared.
type Desired struct {
	Networks []Network
	Guests   []Guest
	// index finds the guests of a network; nil: all are looked at.
	index *index
}

// Observed is the host as one look saw it.
type Observed struct {
	Host hostnet.Observed
	// Serving are the uids of the networks whose DHCP server runs, Served those
	// that have files of one.
	Serving, Served map[string]bool
	// Listening are the host's own sockets that wait for others, as tcp/80.
	Listening map[string]bool
	// Resolvers is how the host finds names.
	Resolvers Resolvers
	// Using says of MAC addresses of machines that are gone whether an instance
	// still has them, as far as that was looked at.
	Using map[string]bool
	// IPv6: the kernel speaks it.
	IPv6 bool
	// Own is what is known of the host's own network.
	Own OwnNetwork
}

// Policy is what else a plan depends on; a value, so that Plan stays pure.
type Policy struct {
	Namespace string
	// Sweep removes what bears our stamp and was never declared to this store.
	Sweep bool
	Now   time.Time
}

// Impacts of a step, as everywhere in a plan.
const (
	impactNone    = "none"
	impactLive    = "live"
	impactRestart = "restart"
	impactDestroy = "destroy"
)

// Step is one thing that a person would see done to a network.
type Step struct {
	Network string
	// Action is create, update or delete.
	Action  string
	Impact  string
	Detail  string
	Changes []Change
	// Held says what stands in the way or must be allowed first.
	Held string
}

// Change is one field that separates what is there from what is declared.
type Change struct{ Field, From, To, Impact string }

// Planned is what a plan says of one network.
type Planned struct {
	// Is the network as it is carried out now: as declared, or as it was
	// before a change that waits for a person's word.
	Is spec.Network
	// On says that it shall be on the host.
	On bool
	// Out says that there is no room for it on the host.
	Out bool
	// Heir is the declared network that takes a dying one's bridge over.
	Heir string
	// Gone: nothing of a dying one is left, its record can go.
	Gone bool
	// Guests are the addresses given.
	Guests                map[string]spec.GuestAddress
	Gateways, Nameservers []string
	Published             []string
	// Carried is what the host's NICs under the bridge had of their own.
	Carried map[string]hostnet.Carried
	// DHCP is nil where there is none to be.
	DHCP *dhcp.Network
	// Steps are for people; at most one is not empty.
	Steps []Step
	// Links are the steps of the network's own bridge that may be taken now.
	Links []hostnet.Step
	// Held is a change that waits to be allowed, Waiting what a dying network
	// waits for, Errs why the bridge cannot be as declared.
	Held, Waiting string
	// Waits says why a change of the host's own network is not kept yet.
	Waits string
	Errs  []error
	// Notes are what works only in part.
	Notes []string
}

// Plan is what separates the observed from the declared.
type Plan struct {
	// Networks are in the order of Desired.Networks.
	Networks []Planned
	// Strays are steps that remove bridges of nobody.
	Strays []hostnet.Step
	// Unknown are our stamped bridges that nothing declares and that stay.
	Unknown []string
	Rules   firewall.Rules
	// Routers are set before, Parameters after the firewall is loaded.
	Routers, Parameters []sysctl.Setting
	// Forwarders are the bridges of others for which the host may forward, by
	// the parameter that they need.
	Forwarders map[string][]string
	// Orphans are the uids of DHCP servers of no network.
	Orphans []string
}

// Links says how many steps on links are to be taken.
func (p Plan) links() int {
	n := len(p.Strays)
	for _, each := range p.Networks {
		n += len(each.Links)
	}
	return n
}
