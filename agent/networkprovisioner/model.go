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
	// without a machine; see markRemaining.
	remaining map[string]bool
}

func (n Network) id() state.ID { return state.ID{Kind: spec.KindNetwork, Name: n.Name} }

// Machine is the part of a machine that concerns networks.
type Machine struct {
	Name, UID string
	Dying     bool
	NICs      map[string]spec.NIC
	Publish   []spec.Publish
	Status    spec.MachineStatus
	// AttachmentsMatch is true if the instance agrees with the record or is
	// absent.
	AttachmentsMatch bool
	// Addresses are the guest's addresses that the hypervisor reports.
	Addresses []netip.Addr
}

// made reports whether the machine has an instance, or soon has one.
func (g Machine) made() bool {
	return g.Status.Instance != nil || g.Status.State == spec.MachineProvisioning
}

// Desired is the whole declared state.
type Desired struct {
	Networks []Network
	Machines []Machine
	// index finds the guests of a network. Decode sets it.
	index *index
}

// Observed is an observation of the host.
type Observed struct {
	Host hostnet.Observed
	// Serving holds the uids of networks whose DHCP server runs. Served holds
	// the uids of networks that have files of a DHCP server.
	Serving, Served map[string]bool
	// Listening holds the ports at which processes of the host listen, e.g.
	// tcp/80. It is nil if no machine publishes a port.
	Listening map[string]bool
	// Resolvers is the host's DNS configuration.
	Resolvers resolvconf.Resolvers
	// Using says, for each MAC address of a removed machine that the pass
	// looked up, whether an instance still has this address.
	Using map[string]bool
	// IPv6 is true if the kernel supports IPv6.
	IPv6 bool
	// Own is the state of the host's own network.
	Own OwnNetwork
	// Obstacles are the reasons why NICs cannot join a bridge, by NIC.
	Obstacles map[string]string
	// Tables are the host's nftables tables. Tables is nil if the host has no nft
	// or the tables cannot be read. In the latter case TablesErr is the reason.
	Tables    Tables
	TablesErr error
	// Missing says whether the host lacks nft and whether it lacks programs for
	// DHCP.
	Missing struct{ NFT, DHCP bool }
	// Owned holds the names of the kernel parameters that hostler has set, by
	// owner. AcceptRA holds the values of accept_ra parameters, by name.
	Owned    map[string][]string
	AcceptRA map[string]string
	// Abandoned are the host's ends of pairs that a killed hypervisor left; see
	// pairs.
	Abandoned []string
	// Left holds the parts of the host's state that earlier passes of this
	// process left, by keys such as leftRules. It is nil before the first pass.
	Left map[string]Left
}

// Left is a part of the host's state that a pass left.
type Left struct {
	// Wanted describes the wanted state of that pass in full, for comparisons.
	Wanted string
	// Holds is true if the host still has the state that the pass left.
	Holds bool
}

// left looks up a part of the host's state by its key. again is true if an
// earlier pass already set this part as wanted now. holds is true if, in
// addition, no other process has changed the part since.
func (o Observed) left(key, wanted string) (again, holds bool) {
	l, there := o.Left[key]
	again = there && l.Wanted == wanted
	return again, again && l.Holds
}

// These are the keys of Observed.Left, along with those of leftServer() and
// leftBoot().
const (
	leftRules      = "rules"
	leftParameters = "parameters"
)

func leftServer(uid string) string  { return "server " + uid }
func leftBoot(bridge string) string { return "boot " + bridge }

// Policy holds the other inputs of a plan.
type Policy struct {
	Namespace string
	// Sweep makes the plan remove objects that have our stamp but no record in
	// this store.
	Sweep bool
	Now   time.Time
	// Delayed holds the uids of networks whose operations wait for a retry.
	Delayed map[string]bool
}

// Planned is a plan's result for a network.
type Planned struct {
	// Is is the version of the network that the plan carries out. It is the
	// declared version, or the applied version if the declared one cannot be
	// applied or awaits permission.
	Is spec.Network
	// On is true if the network should be on the host.
	On bool
	// Out is true if the network must not be on the host because of a conflict.
	Out bool
	// Heir is the declared network that takes over a dying network's bridge.
	Heir string
	// Gone is true if the host has nothing of a dying network any more, so that
	// its record can be deleted.
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
	// Steps holds at most one step, which a plan shows for the network.
	Steps []plan.Step
	// Links are the permitted steps on the network's own bridge.
	Links []hostnet.Step
	// Cuts describes a change that cuts off guests, and Held one that awaits
	// permission. Waiting names the obstacle to the network's deletion. Errs are
	// the reasons why the bridge cannot be as declared.
	Cuts, Held, Waiting string
	// Waits is the reason why a change of the host's own network is not final
	// yet.
	Waits string
	// Restored is true if the NIC's manager is to make the bridge again.
	Restored bool
	Errs     []error
	// Notes describe features that work only partly.
	Notes []string
	// Findings are the foreign chains that block declared flows.
	Findings []firewall.Finding
}

// Plan holds the changes that turn the observed state into the declared state.
type Plan struct {
	// Networks are in the order of Desired.Networks.
	Networks []Planned
	// Operations are carried out in this order.
	Operations []Operation
	// Strays are steps that remove bridges without a record.
	Strays []hostnet.Step
	// Unknown are the bridges with our stamp that the agent keeps although no
	// network declares them.
	Unknown []string
	Rules   firewall.Rules
	// Routers are the accept_ra settings of links, Parameters the other kernel
	// parameters. maker.set decides their order.
	Routers, Parameters []sysctl.Setting
	// Orphans are the uids of DHCP servers without a network.
	Orphans []string
}

// Op is the kind of an operation.
type Op string

// These are the kinds of operations, in about their order. The pass observes
// the host again after opInstall, and after the last of opLinks and opStray.
const (
	opInstall    Op = "install"    // install the missing programs
	opPromise    Op = "promise"    // store the assigned addresses before they are used
	opLinks      Op = "links"      // change the links of a network
	opStray      Op = "stray"      // remove a bridge without a record, or a pair without a guest
	opOrphan     Op = "orphan"     // end a DHCP server without a network
	opRelease    Op = "release"    // let go of a kernel parameter but leave it set, if foreign bridges rely on it
	opParameters Op = "parameters" // set the kernel parameters
	opRules      Op = "rules"      // load the firewall
	opEndServer  Op = "end-server" // end a network's DHCP server
	opServe      Op = "serve"      // run a network's DHCP server
	opPersist    Op = "persist"    // make a bridge survive a reboot
	opRestore    Op = "restore"    // make the NIC's manager make a persistent bridge
	opDrop       Op = "drop"       // undo opPersist
	opForget     Op = "forget"     // delete the network's record
)

// Operation is a change of the host or of the store.
type Operation struct {
	Op Op
	// UID is the network whose further operations a failure prevents. If it is
	// empty, a failure affects all networks.
	UID string
	// Optional is true if a failure is only logged.
	Optional bool
	// Again is true if an earlier pass left the wanted state, so that another
	// process must have changed the host since.
	Again bool
	// Err is the reason why the operation cannot be carried out.
	Err error
	// Links are the steps of opLinks and opStray. Change is the guarded change
	// that makes these steps, or nil. If EndServer is true, the network's DHCP
	// server ends before the steps.
	Links     []hostnet.Step
	Change    *guard.Change
	EndServer bool
	// Statuses are the statuses that opPromise writes, by the network's uid.
	Statuses map[string]spec.NetworkStatus
	// opRelease uses Owner, Parameter and Users, where Users are foreign
	// bridges. opParameters uses Settings.
	Owner, Parameter string
	Users            []string
	Settings         []OwnSettings
	// opOrphan, opEndServer and opServe use Server, the uid of the network of
	// the DHCP server. opServe also uses DHCP, the server's configuration.
	Server string
	DHCP   *dhcp.Network
	// opPersist, opRestore and opDrop use Boot, the bridge. The latter two use only its name.
	Boot persist.Bridge
}

// OwnSettings holds all kernel parameters of an owner.
type OwnSettings struct {
	Owner    string
	Settings []sysctl.Setting
}
