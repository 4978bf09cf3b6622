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
	"hostler/hostnet/guard"
	"hostler/hostnet/persist"
	"hostler/hostnet/resolvconf"
	"hostler/internal/plan"
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

func (n Network) id() state.ID { return state.ID{Kind: spec.KindNetwork, Name: n.Name} }

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
	Resolvers resolvconf.Resolvers
	// Using reports whether an instance still has the MAC address of a removed
	// machine. It has only the addresses that were looked up.
	Using map[string]bool
	// IPv6: the kernel supports IPv6.
	IPv6 bool
	// Own is the state of the host's own network.
	Own OwnNetwork
	// Tables are the host's nftables tables. They are nil if there is no nft, and
	// TablesErr is the reason why they cannot be read.
	Tables    Tables
	TablesErr error
	// Missing are the programs that the host lacks: nft, and those of DHCP.
	Missing struct{ NFT, DHCP bool }
	// Owned are the kernel parameters that hostler has set, by owner. AcceptRA
	// holds the values of links' accept_ra.
	Owned    map[string][]string
	AcceptRA map[string]string
	// Left is the state that earlier passes of this process left, by its key; see
	// leftRules. It is nil before the first pass.
	Left map[string]Left
}

// Left is a part of the host's state that a pass left.
type Left struct {
	// Wanted describes the wanted state in full, for comparisons.
	Wanted string
	// Holds: the host still has it.
	Holds bool
}

// left compares a part of the host's state with the wanted state: again means
// that a pass left it so, holds that the host still has it.
func (o Observed) left(key, wanted string) (again, holds bool) {
	l, there := o.Left[key]
	again = there && l.Wanted == wanted
	return again, again && l.Holds
}

// The keys of Observed.Left.
const (
	leftRules      = "rules"
	leftParameters = "parameters"
)

func leftServer(uid string) string  { return "server " + uid }
func leftBoot(bridge string) string { return "boot " + bridge }

// Policy holds the other inputs of a plan, as a value, so that Make stays pure.
type Policy struct {
	Namespace string
	// Sweep removes stamped objects that were never declared to this store.
	Sweep bool
	Now   time.Time
	// Delayed are the uids of networks whose operations wait for a retry.
	Delayed map[string]bool
}

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
	Steps []plan.Step
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
	// Findings are the foreign chains that block declared flows.
	Findings []firewall.Finding
}

// Plan holds the steps from the observed to the declared state.
type Plan struct {
	// Networks are in the order of Desired.Networks.
	Networks []Planned
	// Operations are carried out in this order.
	Operations []Operation
	// Strays are steps that remove bridges without a record.
	Strays []hostnet.Step
	// Unknown are our stamped bridges that nothing declares and that stay.
	Unknown []string
	Rules   firewall.Rules
	// Routers are set before the firewall is loaded, Parameters after.
	Routers, Parameters []sysctl.Setting
	// Orphans are the uids of DHCP servers without a network.
	Orphans []string
}

// Op is the kind of an operation.
type Op string

// The kinds of operations, in their order. The host is observed again after
// opInstall, and after the last of opLinks and opStray.
const (
	opInstall    Op = "install"    // the missing programs
	opPromise    Op = "promise"    // store the assigned addresses before they are used
	opLinks      Op = "links"      // change the links of a network
	opStray      Op = "stray"      // remove a bridge without a record
	opOrphan     Op = "orphan"     // end a DHCP server without a network
	opRelease    Op = "release"    // leave a kernel parameter as it is, if other users need it
	opParameters Op = "parameters" // set the kernel parameters
	opRules      Op = "rules"      // load the firewall
	opEndServer  Op = "end-server" // end a network's DHCP server
	opServe      Op = "serve"      // run a network's DHCP server
	opPersist    Op = "persist"    // make a bridge survive a reboot
	opDrop       Op = "drop"       // undo opPersist
	opForget     Op = "forget"     // delete the network's record
)

// Operation is a change of the host or of the store.
type Operation struct {
	Op Op
	// UID is the network whose further operations a failure prevents. If it is
	// empty, a failure affects all networks.
	UID string
	// Optional: a failure is only logged.
	Optional bool
	// Again: the wanted state is that of an earlier pass, so another process has
	// changed the host.
	Again bool
	// Err is the reason why the operation cannot be carried out.
	Err error
	// Links are the steps of opLinks and opStray. Change is their guarded change,
	// or nil. EndServer: the network's DHCP server ends first.
	Links     []hostnet.Step
	Change    *guard.Change
	EndServer bool
	// Statuses are those of opPromise, by the network's uid.
	Statuses map[string]spec.NetworkStatus
	// Owner, Parameter and Users are those of opRelease, Settings those of
	// opParameters.
	Owner, Parameter string
	Users            []string
	Settings         []OwnSettings
	// Server is the uid of the DHCP server of opOrphan, opEndServer and opServe,
	// DHCP its configuration.
	Server string
	DHCP   *dhcp.Network
	// Boot is the bridge of opPersist and opDrop.
	Boot persist.Bridge
}

// OwnSettings are all kernel parameters of an owner.
type OwnSettings struct {
	Owner    string
	Settings []sysctl.Setting
}
