package spec

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// The kinds of stored objects.
const (
	KindDeclaration   = "declaration"
	KindMachine       = "machine"
	KindVolume        = "volume"
	KindFilesystem    = "filesystem"
	KindNetwork       = "network"
	KindContainerType = "type" // object names are types, e.g. lxd
	KindHost          = "host" // one object, named "host"
)

// MachineRecord is the spec half of a machine object in the store. Header.Allow
// lists the impacts that the user allowed when this generation was applied:
// restart, recreate.
type MachineRecord struct {
	Header
	Machine Machine `json:"machine"`
	// Consents counts the allowed recreates, and RestartConsents the allowed restarts
	// and recreates; see MachineStatus.ConsentsUsed.
	Consents        int `json:"consents,omitempty"`
	RestartConsents int `json:"restart-consents,omitempty"`
	// PowerOverride is the power state requested by `hostler start` or `stop`;
	// applying the declaration again clears it. Nil means as declared.
	PowerOverride *bool `json:"power-override,omitempty"`
	// RestartRequest counts `hostler restart` calls; each makes a new generation.
	RestartRequest int `json:"restart-request,omitempty"`
	// Adopted is true if the instance existed before the machine was declared. The
	// instance keeps the user-data and keys of its creation.
	Adopted bool `json:"adopted,omitempty"`
	// AdoptedToken is the token of the adopted instance's stamp. An instance with
	// another token was created by hostler since. It is empty in records of earlier
	// versions.
	AdoptedToken string `json:"adopted-token,omitempty"`
	// GuestLost is true if this record was restored from a stamp that had no room
	// for the guest's configuration, e.g. user-data. The guest is not reconfigured
	// until the machine is declared again.
	GuestLost bool `json:"guest-lost,omitempty"`
	// InstanceName is the name of the instance of a renamed machine. It is empty
	// if the instance has the machine's name.
	InstanceName string `json:"instance-name,omitempty"`
	// Migration is the last move of the machine to another container type, or nil.
	Migration *Migration `json:"migration,omitempty"`
}

// IsAdopted reports whether the instance with the token was adopted. The token is
// empty if the machine's instance is not known yet.
func (r *MachineRecord) IsAdopted(token string) bool {
	return r.Adopted && (r.AdoptedToken == "" || token == "" || token == r.AdoptedToken)
}

// Consent records impacts that the user allows, besides those allowed before. It
// counts each consent, because a consent is valid for a single restart or recreate.
func (r *MachineRecord) Consent(impacts []string) {
	r.Header.Consent(impacts)
	if slices.Contains(impacts, AllowRecreate) {
		r.Consents++
	}
	if len(impacts) > 0 {
		r.RestartConsents++
	}
}

// AllowsRecreate reports whether the user allowed a recreate that was not carried out
// yet.
func (r *MachineRecord) AllowsRecreate(s *MachineStatus) bool {
	return r.Consents > s.ConsentsUsed && slices.Contains(r.Allow, AllowRecreate)
}

// AllowsRestart reports whether the user allowed a restart or a recreate that was not
// carried out yet.
func (r *MachineRecord) AllowsRestart(s *MachineStatus) bool {
	return r.RestartConsents > s.RestartConsentsUsed && len(r.Allow) > 0 || r.AllowsRecreate(s)
}

// MachineState is the state of a machine.
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

// NotAutostarted reports whether a machine without autostart waits for the user
// to start it, because it was not started since the host booted.
func (s MachineStatus) NotAutostarted() bool {
	return ConditionOf(s.Conditions, ConditionReady).Reason == ReasonNotAutostarted
}

// ConditionReady is the type of the condition that says whether a machine's
// instance is usable. ReasonNotAutostarted is its reason for a machine that is
// declared as running and does not run because it has no autostart.
const (
	ConditionReady       = "Ready"
	ReasonNotAutostarted = "NotAutostarted"
)

// Attempts is the retry state of an object.
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
	// Ports holds the host's end of each of the instance's interfaces, by the
	// interface's name in the guest. The network provisioner finds these ends
	// here.
	Ports      map[string]Port `json:"ports,omitempty"`
	Conditions []Condition     `json:"conditions,omitempty"`
	Attempts   Attempts        `json:"retry,omitzero"`
	Percent    *int            `json:"percent,omitempty"`
	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observed-generation,omitempty"`
	// Uses lists the volumes and filesystems (KIND/NAME) in use; see Phase. Nil
	// means that the record is of an earlier version.
	Uses []string `json:"uses,omitzero"`
	// UsesNICs likewise lists the NICs in use; see NICObject.
	UsesNICs []string `json:"uses-nics,omitzero"`
	// ConsentsUsed is the number of consents in the record when the instance was last
	// observed to need no recreate. These consents are used up.
	ConsentsUsed int `json:"consents-used,omitempty"`
	// RestartConsentsUsed likewise counts the consents to restarts.
	RestartConsentsUsed int `json:"restart-consents-used,omitempty"`
	// FormerConsentUsed is how an earlier version told that all consents are used up: by
	// the generation of the record.
	FormerConsentUsed int64 `json:"consent-used,omitempty"`
	// RestartsDone is the RestartRequest of MachineRecord that the last restart
	// answered. It is lower than the request while a restart is due, including a
	// restart that a change needs.
	RestartsDone int `json:"restarts-done,omitempty"`
	// RestartBegun is set before a restart, so that the restart is not repeated if its
	// end could not be recorded.
	RestartBegun *RestartBegun `json:"restart-begun,omitempty"`
	// RestartedFor is set by a restart that makes changes. It is kept until the
	// instance is observed to have the changes.
	RestartedFor *RestartedFor `json:"restarted-for,omitempty"`
	// RetriesDone is the last RetryRequest of MachineRecord that was seen. While
	// the instance is frozen, it stays lower until the instance is resumed.
	RetriesDone int `json:"retries-done,omitempty"`
	// Boot is the boot of the host during which the instance last ran.
	Boot string `json:"boot,omitempty"`
	// FailedStep is the step whose failure Attempts counts.
	FailedStep *FailedStep `json:"failed-step,omitempty"`
	// StartFailed is true if the failure that Attempts counts prevented a start of
	// the instance.
	StartFailed bool `json:"start-failed,omitempty"`
	// StartedAt is when the agent last started the instance. Deaths is the number
	// of consecutive starts after which the instance soon stopped by itself.
	StartedAt *time.Time `json:"started-at,omitempty"`
	Deaths    int        `json:"deaths,omitempty"`
	Took      *Took      `json:"took,omitempty"`
}

// RestartBegun is a restart that was begun.
type RestartBegun struct {
	// Request is the RestartRequest that it answers.
	Request int       `json:"request"`
	At      time.Time `json:"at"`
}

// RestartedFor names the changed fields for which an instance was restarted,
// and the machine's generation at that time.
type RestartedFor struct {
	Generation int64    `json:"generation"`
	Fields     []string `json:"fields"`
}

// FailedStep names a failed step and those of its fields that the instance
// still lacks.
type FailedStep struct {
	Action string   `json:"action"`
	Fields []string `json:"fields,omitempty"`
}

// TypeRecord is the spec half of a container type object.
type TypeRecord struct {
	// RetryRequest counts `hostler retry type/NAME` calls. Its only purpose is
	// that each call makes a new generation.
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
	// ObservedGeneration is the generation that the attempts refer to; `hostler
	// retry` makes a new generation.
	ObservedGeneration int64 `json:"observed-generation,omitempty"`
	// Folder is the folder of the hypervisor that has the type's instances. It is
	// empty if the type was never ready, or only for an earlier version.
	Folder string `json:"folder,omitempty"`
}

// HostRecord is the spec half of the single host object.
type HostRecord struct {
	// Config is the host configuration as last read.
	Config Config `json:"config"`
	// Harvest overrides the configured harvest mode. Empty means as configured.
	Harvest string `json:"harvest,omitempty"`
	// Facts are the agent's observations of the host's kernel. A provisioner that
	// runs in a separate systemd unit cannot make them, because the unit hides the
	// kernel's files.
	Facts HostFacts `json:"facts,omitzero"`
	// Recovery is the record of losses of the store.
	Recovery Recovery `json:"lineage,omitzero"`
}

// HarvestMode returns the harvest mode in force.
func (r HostRecord) HarvestMode() string { return cmp.Or(r.Harvest, r.Config.Harvest) }

// HarvestsUnknown reports whether stamped objects without a record are removed.
// They stay until the recovery of missing records has ended.
func (r HostRecord) HarvestsUnknown() bool {
	return r.Recovery.Withheld("") == "" && (r.HarvestMode() == "unknown" || r.HarvestMode() == "all")
}

// HostFacts are facts of the host that affect machines and cannot be
// configured.
type HostFacts struct {
	// Boot identifies this boot of the host, or is empty if unknown.
	Boot string `json:"boot,omitempty"`
}

// Encode marshals a record or status for the store. It panics on an error,
// which these types never cause.
func Encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("spec: cannot encode a record: " + err.Error())
	}
	return b
}

// HostStatus is the status half of the single host object.
type HostStatus struct {
	// Known and KnownStorage are the scans that an earlier version recorded; see
	// Recovery.Adopt().
	Known        []string `json:"known,omitempty"`
	KnownStorage bool     `json:"known-storage,omitempty"`
	// ConfDevice is conf.d's file system when last read, as MAJOR:MINOR.
	ConfDevice string `json:"conf-device,omitempty"`
	// Notices inform the user about the store's history.
	Notices []string `json:"notices,omitempty"`
}

// HostName is the name of the single object of kind host.
const HostName = "host"

// The sources of a declaration besides the path of a conf.d file.
const (
	SourceApply = "apply"
	// SourceStamps is the source of a declaration that was restored from the
	// stamps of instances and storage. The next document that declares one of its
	// objects becomes the object's owner.
	SourceStamps = "stamps"
)

// NetworkRecord is the spec half of a network object. Header.Allow lists the
// impacts that the user allowed: restart.
type NetworkRecord struct {
	Header
	Network Network `json:"network"`
	// Confirm is how long a change that affects the host's own connection waits
	// for `hostler confirm`. If it is zero, a successful probe confirms the
	// change.
	Confirm Duration `json:"confirm,omitempty"`
}

// GuestAddress holds the addresses of a machine's NIC on a network. The
// addresses stay the same for the machine's life.
type GuestAddress struct {
	// Machine is the machine's uid. A later machine of the same name does not
	// inherit the addresses. Machine is empty if the uid is not known.
	Machine string `json:"machine,omitempty"`
	MAC     string `json:"mac"`
	// Addresses have their prefix lengths, e.g. 10.20.0.10/24.
	Addresses []string `json:"addresses"`
	// Declared is true if the user chose the address.
	Declared bool `json:"declared,omitempty"`
	// Released is when the machine was removed, or nil. A released address stays
	// unused for some time before another machine gets it.
	Released *time.Time `json:"released,omitempty"`
}

// NetworkStatus is the status half of a network object.
type NetworkStatus struct {
	// State is pending, ready, error or dying.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Guests holds the assigned addresses, by MACHINE/NIC.
	Guests map[string]GuestAddress `json:"guests,omitempty"`
	// Applied is the network as it was last put in place completely. Machines use
	// it while a change of the declaration waits.
	Applied *Network `json:"applied,omitempty"`
	// NICSettings maps each of the host's NICs under the bridge to the
	// configuration that the NIC had before; see package hostnet.
	NICSettings map[string]json.RawMessage `json:"carried,omitempty"`
	// Published are the host's ports that are forwarded to machines, e.g.
	// tcp/8080.
	Published []string `json:"published,omitempty"`
	// Gateways are the bridge's own addresses without prefix lengths. Nameservers
	// are the DNS servers of the guests.
	Gateways           []string    `json:"gateways,omitempty"`
	Nameservers        []string    `json:"nameservers,omitempty"`
	Conditions         []Condition `json:"conditions,omitempty"`
	Attempts           Attempts    `json:"retry,omitzero"`
	ObservedGeneration int64       `json:"observed-generation,omitempty"`
}
