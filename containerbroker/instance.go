package containerbroker

import (
	"time"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// MaxAddresses bounds the addresses that are stored and tried per guest: the
// guest itself may report any number.
const MaxAddresses = 32

// Stamp is the mark on every object that hostler makes. Instances without a
// stamp, or with the stamp of another namespace, are foreign.
type Stamp struct {
	// Namespace is the namespace of the agent that made the object.
	Namespace string
	// UID is the identity of the declared object.
	UID string
	// Token identifies the create attempt that made the object.
	Token string
	// Record is the declared machine as JSON, complete enough to rebuild its
	// record after the loss of the store. At most MaxRecord.
	Record string
	// Store is the id of the store whose agent stamped the object, with the
	// store's revision. Drivers store it and never compare it. At most 256
	// printable bytes. Empty: stamped by an earlier version of the agent.
	Store string
}

// MaxRecord bounds Stamp.Record in bytes.
const MaxRecord = 48 << 10

// Check refuses, with fault.Invalid, a stamp that no driver can write.
func (s Stamp) Check() error {
	if s.Namespace == "" || s.UID == "" {
		return fault.New(fault.Invalid, "the stamp has no namespace or no uid")
	}
	if len(s.Record) > MaxRecord {
		return fault.New(fault.Invalid, "its record has %d bytes, the limit is %d", len(s.Record), MaxRecord)
	}
	return nil
}

// Is reports whether both stamps have the same namespace, UID and token; the
// records may differ. A nil stamp equals no stamp.
func (s *Stamp) Is(other Stamp) bool {
	return s != nil && s.Namespace == other.Namespace && s.UID == other.UID && s.Token == other.Token
}

// MayStamp returns why an instance with the stamp have may not get the stamp to
// from a caller that saw seen; nil: it may.
func MayStamp(have, seen *Stamp, to Stamp) error {
	switch {
	case have.Is(to):
		return nil
	case have != nil && have.Namespace != to.Namespace:
		return fault.New(fault.Conflict, "it belongs to namespace %q", have.Namespace)
	case have == nil && seen == nil, seen != nil && have.Is(*seen):
		return nil
	}
	return fault.New(fault.Conflict, "its stamp changed")
}

// MayUnstamp is MayStamp for the removal of a stamp.
func MayUnstamp(have *Stamp, seen Stamp) error {
	if have == nil || have.Is(seen) {
		return nil
	}
	return fault.New(fault.Conflict, "its stamp changed")
}

// Machine is a machine as a driver needs it: all defaults filled in, all
// references resolved. It carries no policy.
type Machine struct {
	Name  string
	Stamp Stamp
	// ImageID is the hypervisor's id of the image (ImageStore.EnsureImage);
	// Diff does not compare an empty ImageID.
	ImageID string
	Properties
	// Pool is the storage pool of the root disk; empty: the hypervisor's own.
	Pool string
	// Guest is the input of cloud-init.
	Guest cloudinit.Input
	// KeepGuest leaves the cloud-init data of an existing guest unchanged: an
	// adopted instance must not run its first boot again.
	KeepGuest bool
	// RerunFirstBoot: changed user-data makes cloud-init run its first boot
	// again at the guest's next start. Without it the user-data of an existing
	// guest stays unchanged.
	RerunFirstBoot bool
	// NICs are the network interfaces, sorted by name; none: those of the
	// hypervisor's default.
	NICs []NIC
	// Disks are the attached disks besides the root disk, sorted by name.
	Disks []Disk
	// KnownDisks are the names of the disks that the instance may have. A
	// hypervisor whose names are short recognises a cut name by them.
	KnownDisks []string
	// ExpectAddress: the instance is ready only with an address. An instance
	// with NICs always needs one address on each NIC whose addresses are known.
	ExpectAddress bool
}

// Status is the power state of an instance.
type Status string

// The states. Any other state that a hypervisor reports is StatusUnknown.
const (
	StatusRunning Status = "running"
	StatusStopped Status = "stopped"
	StatusFrozen  Status = "frozen"
	// StatusBusy: the hypervisor is carrying out an operation on the instance.
	StatusBusy Status = "busy"
	// StatusHalfMade: the creation was interrupted and does not continue. The
	// instance has never run and can only be deleted. Drivers report this state
	// only for stamped instances.
	StatusHalfMade Status = "half-made"
	StatusError    Status = "error"
	StatusUnknown  Status = "unknown"
)

// Instance is an instance as the hypervisor reports it.
type Instance struct {
	Name string
	// Stamp is nil for a foreign instance. An instance of another namespace
	// keeps that stamp here; the caller treats it as foreign.
	Stamp  *Stamp
	Status Status
	// Standstill says why a frozen instance is frozen and how to resume it;
	// empty: an operator froze it.
	Standstill string
	// ImageID is the image of the instance, as far as the hypervisor knows.
	ImageID string
	// Arch is the architecture in Debian's terms, e.g. amd64, if the hypervisor
	// reports it.
	Arch string
	// Properties are in effect: the stored properties and those that the
	// hypervisor adds, e.g. from profiles. 0: no limit is set.
	Properties
	// Stored are the instance's own settings, with which it starts next. Running
	// are those with which it runs; nil if it does not run, or if the hypervisor
	// stores every change at once.
	Stored  Settings
	Running *Settings
	// Room is the room that it has while it runs; nil: any.
	Room *Room
	// RootUnlimited: the root disk has a limit, but its pool enforces none.
	RootUnlimited bool
	Created       time.Time
	// Started is the time of the last start, if the hypervisor reports it.
	Started time.Time
	// Odd names settings of the instance that no Machine can declare, and that
	// an adoption would lose; empty: none.
	Odd string
	// Ports are the host's ends of the interfaces, by their names in the guest.
	// Interfaces without a bridge in the instance's configuration are left out.
	Ports map[string]Port
	// MACs are the MAC addresses of all interfaces in lower case, of running
	// and stopped instances, declared and generated.
	MACs []string
	// List fills in PID and Addresses only with detail.
	PID       int64
	Addresses []string
	// Raw is the driver's own view, for its Diff; opaque to other packages.
	Raw any
}

// Now returns the settings with which a running instance runs, or else those
// with which it starts next.
func (i Instance) Now() Settings {
	if i.Running != nil {
		return *i.Running
	}
	return i.Stored
}

// Room is what an instance can get without a restart.
type Room struct {
	// CPUs is the largest number of processors.
	CPUs int
	// Devices is how many more NICs and disks can be plugged in, or Unlimited.
	Devices int
}

// Unlimited is the room for devices of an instance that takes any number.
const Unlimited = -1

// Port is a network device of the host that leads to an instance.
type Port struct {
	Device string
	// Bridge is the configured bridge, even if it does not exist.
	Bridge string
}

// Impact is the impact of a step of any plan.
type Impact = plan.Impact

// Change is the change of a field in any plan.
type Change = plan.Change

// The impacts, in rising order.
const (
	ImpactNone     = plan.None
	ImpactLive     = plan.Live
	ImpactRestart  = plan.Restart
	ImpactRecreate = plan.Recreate
	ImpactDestroy  = plan.Destroy
)

// Worst returns the highest impact among changes.
func Worst(changes []Change) Impact { return plan.Worst(changes) }
