package spec

import (
	"encoding/json"
	"slices"
	"time"
)

// The kinds of objects that are kept.
const (
	KindDeclaration   = "declaration"
	KindMachine       = "machine"
	KindVolume        = "volume"
	KindFilesystem    = "filesystem"
	KindNetwork       = "network"
	KindContainerType = "type" // object names: lxd, kvm, lxc
	KindHost          = "host" // one object, named "host"
)

// MachineRecord is the spec half of a machine object in the store.
type MachineRecord struct {
	Declaration string  `json:"declaration"`
	Machine     Machine `json:"machine"`
	// Allow lists the impacts that the person allowed when this generation
	// was applied: restart, recreate.
	Allow []string `json:"allow,omitempty"`
	// Consents counts the times that a recreate was allowed, which matters only
	// by making a new generation.
	Consents int `json:"consents,omitempty"`
	// PowerOverride is what `hostler start` or `stop` asked for; applying the
	// declaration again clears it. Nil: as declared.
	PowerOverride *bool `json:"power-override,omitempty"`
	// RestartRequest counts `hostler restart` calls and RetryRequest those of
	// `hostler retry`, which matters only by making a new generation.
	RestartRequest int `json:"restart-request,omitempty"`
	RetryRequest   int `json:"retry-request,omitempty"`
	// Adopted: the instance was there before the machine was declared; what its
	// guest was told at its creation is not touched.
	Adopted bool `json:"adopted,omitempty"`
	// GuestLost: this record was written again from a stamp that had no room
	// for what the guest is told: that stays until the machine is declared again.
	GuestLost bool `json:"guest-lost,omitempty"`
	// Released: the instance survives the removal of this record.
	Released bool `json:"released,omitempty"`
	// Held is empty while a document declares the machine.
	Held Hold `json:"held,omitempty"`
	// InstanceName is the name of the instance of a machine that was renamed;
	// empty: the machine's.
	InstanceName string `json:"instance-name,omitempty"`
}

// Consent lets the impacts happen. Consent to a recreate is for one recreate:
// given again, it counts again.
func (r *MachineRecord) Consent(impacts []string) {
	r.Allow = impacts
	if slices.Contains(impacts, "recreate") {
		r.Consents++
	}
}

// MachineState is the one word of a machine's status.
type MachineState string

// The machine states.
const (
	MachinePending      MachineState = "pending"
	MachineProvisioning MachineState = "provisioning"
	MachineRunning      MachineState = "running"
	MachineStopped      MachineState = "stopped"
	MachineError        MachineState = "error"
	MachineUnknown      MachineState = "unknown"
	MachineDying        MachineState = "dying"
)

// Condition is one aspect of an object's state.
type Condition struct {
	Type    string    `json:"type"`
	Status  bool      `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// ConditionUpToDate says that nothing separates what is there from what is
// declared.
const ConditionUpToDate = "UpToDate"

// ReasonNewMachineOnly is why a machine is not up to date whose instance has its
// networks and storage as declared: only a new one would be told other
// user-data.
const ReasonNewMachineOnly = "NewMachineOnly"

// HasGiven says that nothing separates an instance's networks and storage from
// what is declared.
func HasGiven(cs []Condition) bool {
	return !slices.ContainsFunc(cs, func(c Condition) bool {
		return c.Type == ConditionUpToDate && !c.Status && c.Reason != ReasonNewMachineOnly
	})
}

// Differs says whether these conditions tell of a difference from what is
// declared.
func Differs(cs []Condition) bool {
	return slices.ContainsFunc(cs, func(c Condition) bool { return c.Type == ConditionUpToDate && !c.Status })
}

// SetCondition replaces the condition of the same type; since moves only when
// status, reason or message changed.
func SetCondition(cs []Condition, c Condition) []Condition {
	for i := range cs {
		if cs[i].Type != c.Type {
			continue
		}
		if cs[i].Status == c.Status && cs[i].Reason == c.Reason && cs[i].Message == c.Message {
			return cs
		}
		cs[i] = c
		return cs
	}
	return append(cs, c)
}

// Rests says that a machine that is not to start with the host waits, since the
// host was restarted, for a person to start it.
func (s MachineStatus) Rests() bool {
	for _, c := range s.Conditions {
		if c.Type == ConditionReady {
			return c.Reason == ReasonNotAutostarted
		}
	}
	return false
}

// ConditionReady is the type of the condition that says whether a machine's
// instance can be used; ReasonNotAutostarted is why one does not run that is
// declared as running.
const (
	ConditionReady       = "Ready"
	ReasonNotAutostarted = "NotAutostarted"
)

// Attempts is the retry state that every object with retries carries.
type Attempts struct {
	Count     int        `json:"attempts,omitempty"`
	NextRetry *time.Time `json:"next-retry,omitempty"`
	// ErrorKind is a fault.Kind; empty when there is no error.
	ErrorKind string `json:"error-kind,omitempty"`
}

// MachineStatus is the status half of a machine object in the store.
type MachineStatus struct {
	State     MachineState  `json:"state"`
	Message   string        `json:"message,omitempty"`
	Instance  *InstanceInfo `json:"instance,omitempty"`
	Addresses []string      `json:"addresses,omitempty"`
	Hardware  *Hardware     `json:"hardware,omitempty"`
	// Ports are the host's ends of the instance's interfaces, by their names
	// inside: who keeps the bridges finds them by it.
	Ports      map[string]Port `json:"ports,omitempty"`
	Conditions []Condition     `json:"conditions,omitempty"`
	Attempts   Attempts        `json:"retry,omitzero"`
	Percent    *int            `json:"percent,omitempty"`
	// ObservedGeneration is the generation this status speaks of.
	ObservedGeneration int64 `json:"observed-generation,omitempty"`
	// LetGo is the generation of which the instance was last seen to have no
	// storage but what the record lists.
	LetGo int64 `json:"let-go,omitempty"`
	// ConsentUsed is the generation at which the instance was last seen to need
	// no recreate: what a user allowed in that generation is used up.
	ConsentUsed int64 `json:"consent-used,omitempty"`
	// RestartsDone follows MachineRecord.RestartRequest; it is less while a
	// restart is owed, be it for a change that was made.
	RestartsDone int `json:"restarts-done,omitempty"`
	// RestartedFor is kept from a restart that was to make changes until the
	// instance is seen to have them.
	RestartedFor *RestartedFor `json:"restarted-for,omitempty"`
	// RetriesDone follows MachineRecord.RetryRequest, but while the instance is
	// frozen: a person who asks for it then has it resumed.
	RetriesDone int `json:"retries-done,omitempty"`
	// Boot is the boot of the host in which the instance last ran.
	Boot string `json:"boot,omitempty"`
	// FailedStep is the step whose failure Attempts speaks of.
	FailedStep *FailedStep `json:"failed-step,omitempty"`
	// StartFailed: the failure that Attempts speaks of kept the instance from
	// being started.
	StartFailed bool `json:"start-failed,omitempty"`
	// StartedAt is when the instance was last started by the agent, and Deaths
	// how often in a row it died soon after.
	StartedAt *time.Time `json:"started-at,omitempty"`
	Deaths    int        `json:"deaths,omitempty"`
}

// RestartedFor names the fields that an instance was restarted for, at a
// generation of its machine.
type RestartedFor struct {
	Generation int64    `json:"generation"`
	Fields     []string `json:"fields"`
}

// FailedStep names a step that failed and the fields that it was to change, as
// far as the instance still lacks them.
type FailedStep struct {
	Action string   `json:"action"`
	Fields []string `json:"fields,omitempty"`
}

// TypeRecord is the spec half of a container type object.
type TypeRecord struct {
	// RetryRequest counts `hostler retry type/NAME` calls, which matter only by
	// making a new generation.
	RetryRequest int `json:"retry-request,omitempty"`
}

// TypeStatus is the status half of a container type object.
type TypeStatus struct {
	// State is absent, waiting, initialising, ready or error.
	State      string      `json:"state"`
	Message    string      `json:"message,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Attempts   Attempts    `json:"retry,omitzero"`
	Supported  *bool       `json:"supported,omitempty"`
	// ObservedGeneration is the generation the attempts speak of; `hostler retry` makes a new one.
	ObservedGeneration int64 `json:"observed-generation,omitempty"`
}

// HostRecord is the spec half of the one host object.
type HostRecord struct {
	// Config is the host configuration as it was last read.
	Config Config `json:"config"`
	// Harvest overrides the configured harvest mode; empty: as configured.
	Harvest string `json:"harvest,omitempty"`
	// Facts are what the agent sees of the host's kernel. Who provisions in a
	// unit of its own cannot: the kernel's files are hidden there.
	Facts HostFacts `json:"facts,omitzero"`
	// Lineage is what stamps are compared with.
	Lineage Lineage `json:"lineage,omitzero"`
}

// HostFacts is what bears on machines and is nobody's wish.
type HostFacts struct {
	// Boot tells this boot of the host from others; empty: it cannot be told.
	Boot string `json:"boot,omitempty"`
}

// Encode marshals a record or status for the store; these types always can.
func Encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("spec: cannot encode a record: " + err.Error())
	}
	return b
}

// HostStatus is the status half of the one host object.
type HostStatus struct {
	// Known lists the container types whose instances were compared with the
	// records since this store was made: until then a missing record may mean
	// a lost store, and nothing is concluded from it.
	Known []ContainerType `json:"known,omitempty"`
	// KnownStorage says the same of volumes and filesystems.
	KnownStorage bool `json:"known-storage,omitempty"`
	// ConfDevice is the file system that conf.d was on when it was last read, as
	// MAJOR:MINOR.
	ConfDevice string `json:"conf-device,omitempty"`
	// Notices are what a person should know about the store's history.
	Notices []string `json:"notices,omitempty"`
}

// HostName is the name of the one object of kind host.
const HostName = "host"

// The sources of a declaration besides the path of a conf.d file.
const (
	SourceApply = "apply"
	// SourceStamps: written again from the stamps of instances and storage;
	// whoever declares it next owns it.
	SourceStamps = "stamps"
)

// NetworkRecord is the spec half of a network object.
type NetworkRecord struct {
	Declaration string  `json:"declaration"`
	Network     Network `json:"network"`
	// Allow lists the impacts that the person allowed: restart.
	Allow []string `json:"allow,omitempty"`
	// Confirm is how long a change that touches the host's own connection
	// waits for `hostler confirm`; zero: a good probe confirms it.
	Confirm      Duration `json:"confirm,omitempty"`
	RetryRequest int      `json:"retry-request,omitempty"`
	// Held is empty while a document declares the network.
	Held Hold `json:"held,omitempty"`
}

// GuestAddress is what a machine's NIC was given on a network. It is kept for
// the machine's life.
type GuestAddress struct {
	// Machine is the machine's uid: another one of the same name has to wait
	// until it is given its own. Empty: not known.
	Machine string `json:"machine,omitempty"`
	MAC     string `json:"mac"`
	// Addresses with their prefix lengths.
	Addresses []string `json:"addresses"`
	// Declared: a person chose the address.
	Declared bool `json:"declared,omitempty"`
	// Released is when its machine went: the address rests before it is given
	// to another.
	Released *time.Time `json:"released,omitempty"`
}

// NetworkStatus is the status half of a network object.
type NetworkStatus struct {
	// State is pending, ready, error or dying.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Guests holds what was given, by MACHINE/NIC.
	Guests map[string]GuestAddress `json:"guests,omitempty"`
	// Applied is the network as it was last carried out in full; while a change
	// of its declaration waits, it is what machines are given.
	Applied *Network `json:"applied,omitempty"`
	// Carried is, by name, what each of the host's NICs under the bridge had of
	// its own; see package hostnet.
	Carried map[string]json.RawMessage `json:"carried,omitempty"`
	// Published are the host's ports that lead to machines, like tcp/8080.
	Published []string `json:"published,omitempty"`
	// Gateways are the bridge's own addresses without prefix lengths, and
	// Nameservers what guests ask.
	Gateways           []string    `json:"gateways,omitempty"`
	Nameservers        []string    `json:"nameservers,omitempty"`
	Conditions         []Condition `json:"conditions,omitempty"`
	Attempts           Attempts    `json:"retry,omitzero"`
	ObservedGeneration int64       `json:"observed-generation,omitempty"`
}
