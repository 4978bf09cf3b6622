// Package networkprovisioner reconciles the host's declared networks: bridges
// with their addresses, forwarding, the firewall, DHCP and the addresses of
// machines. It reads all records and observes the host, plans the differences
// in a pure function, and carries out the plan.
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

// Network is a network's decoded record.
type Network struct {
	Name, UID  string
	Life       state.Life
	Generation int64
	Record     spec.NetworkRecord
	Status     spec.NetworkStatus
	// remaining holds the keys of Status.Guests that belong to instances
	// without a machine; see withRemaining.
	remaining map[string]bool
}

// Machine is the part of a machine that concerns networks.
type Machine struct {
	Name, UID string
	Type      spec.ContainerType
	Dying     bool
	NICs      map[string]spec.NIC
	Publish   []spec.Publish
	// Ports are the host's ends of its interfaces.
	Ports map[string]spec.Port
	// Instance: an instance is recorded.
	Instance bool
	// AttachmentsMatch: the instance agrees with the record, or is absent.
	AttachmentsMatch bool
	// Addresses are reported by the hypervisor.
	Addresses []netip.Addr
}

// Desired is the whole declared state.
type Desired struct {
	Networks []Network
	Machines []Machine
	// index finds the guests of a network; nil: search all guests.
	index *index
}

// Observed is an observation of the host.
type Observed struct {
	Host hostnet.Observed
	// Serving holds the uids of networks whose DHCP server runs, Served those
	// with files of a DHCP server.
	Serving, Served map[string]bool
	// Listening are the host's own listening sockets, e.g. tcp/80.
	Listening map[string]bool
	// Resolvers is the host's DNS configuration.
	Resolvers Resolvers
	// Using reports whether an instance still has the MAC address of a removed
	// machine. It has only the addresses that were looked up.
	Using map[string]bool
	// IPv6: the kernel supports IPv6.
	IPv6 bool
	// Own is the state of the host's own network.
	Own OwnNetwork
}

// Policy holds the other inputs of a plan, as a value, so that Make stays pure.
type Policy struct {
	Namespace string
	// Sweep removes stamped objects that were never declared to this store.
	Sweep bool
	Now   time.Time
}

// Impacts of a step; all plans use the same words.
const (
	impactNone    = "none"
	impactLive    = "live"
	impactRestart = "restart"
	impactDestroy = "destroy"
)

// Step is a change of a network as shown in plans.
type Step struct {
	Network string
	// Action is create, update or delete.
	Action  string
	Impact  string
	Detail  string
	Changes []Change
	// Held is the obstacle, or the flag that allows the step.
	Held string
	// Allow is the impact whose consent releases the held step, "" if none does.
	Allow string
}

// Change is a field whose observed value differs from the declared value.
type Change struct{ Field, From, To, Impact string }

// Planned is a plan's result for a network.
type Planned struct {
	// Is is the version of the network to carry out: the declared version, or
	// the previous version while a change awaits permission.
	Is spec.Network
	// On means that the network shall be on the host.
	On bool
	// Out means that the network conflicts with the host and stays off it.
	Out bool
	// Heir is the declared network that takes over a dying network's bridge.
	Heir string
	// Gone means that nothing of a dying network is left, so its record can be
	// deleted.
	Gone bool
	// Guests are the assigned addresses.
	Guests                map[string]spec.GuestAddress
	Gateways, Nameservers []string
	Published             []string
	// NICSettings holds the original settings of the host's NICs under the
	// bridge.
	NICSettings map[string]hostnet.NICSettings
	// DHCP is nil if the network needs no server.
	DHCP *dhcp.Network
	// Steps are for display; at most one is not empty.
	Steps []Step
	// Links are the permitted steps on the network's own bridge.
	Links []hostnet.Step
	// Held describes a change that awaits permission, Waiting the obstacle to a
	// network's deletion, Errs why the bridge cannot be as declared.
	Held, Waiting string
	// Waits is the reason why a change of the host's own network is not kept
	// yet.
	Waits string
	Errs  []error
	// Notes describe features that work only partly.
	Notes []string
}

// Plan holds the steps from the observed to the declared state.
type Plan struct {
	// Networks are in the order of Desired.Networks.
	Networks []Planned
	// Strays are steps that remove bridges without a record.
	Strays []hostnet.Step
	// Unknown are our stamped bridges that nothing declares and that stay.
	Unknown []string
	Rules   firewall.Rules
	// Routers are set before the firewall is loaded, Parameters after.
	Routers, Parameters []sysctl.Setting
	// Forwarders are foreign bridges that may rely on the host's forwarding,
	// keyed by the kernel parameter that they need.
	Forwarders map[string][]string
	// Orphans are the uids of DHCP servers without a network.
	Orphans []string
}
