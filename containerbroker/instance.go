package containerbroker

import (
	"time"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// MaxAddresses bounds the addresses that are stored and tried per guest,
// because a guest may report any number.
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
	// record after the loss of the store. It has at most MaxRecord bytes.
	Record string
	// Store is the id of the store whose agent stamped the object, with the
	// store's revision. Drivers store it and never compare it. It has at most
	// 256 printable bytes. It is empty if an earlier version of the agent
	// stamped the object.
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
// records may differ. If s is nil, it returns false.
func (s *Stamp) Is(other Stamp) bool {
	return s != nil && s.Namespace == other.Namespace && s.UID == other.UID && s.Token == other.Token
}

// MayStamp returns nil if a caller may replace the stamp have of an instance by
// the stamp to, else the reason why not. seen is the stamp that the caller saw
// before.
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

// MayUnstamp returns nil if a caller that saw the stamp seen may remove the
// stamp have, else the reason why not.
func MayUnstamp(have *Stamp, seen Stamp) error {
	if have == nil || have.Is(seen) {
		return nil
	}
	return fault.New(fault.Conflict, "its stamp changed")
}

// Machine is a machine as a driver needs it, with all defaults filled in and
// all references resolved. It does not say what to do with the machine, e.g.
// whether to retain its instance.
type Machine struct {
	Name  string
	Stamp Stamp
	// ImageID is the hypervisor's id of the image (ImageStore.EnsureImage);
	// Diff does not compare an empty ImageID.
	ImageID string
	Properties
	// Pool is the storage pool of the root disk; empty means the hypervisor's
	// default.
	Pool string
	// Guest is the input of cloud-init.
	Guest cloudinit.Input
	// KeepGuest leaves the cloud-init data of an existing guest unchanged,
	// because an adopted instance must not run its first boot again.
	KeepGuest bool
	// RerunFirstBoot is true if changed user-data makes cloud-init run its
	// first boot again at the guest's next start. If it is false, the user-data
	// of an existing guest stays unchanged.
	RerunFirstBoot bool
	// NICs are the network interfaces, sorted by name. Without any, the
	// hypervisor's default interfaces are used.
	NICs []NIC
	// Disks are the attached disks besides the root disk, sorted by name.
	Disks []Disk
	// KnownDisks are the names of the disks that the instance may have. A
	// driver whose hypervisor shortens disk names finds the full names here.
	KnownDisks []string
	// ExpectAddress is true if the instance is ready only once it has an
	// address. An instance with NICs always needs one address on each NIC whose
	// addresses are known.
	ExpectAddress bool
}

// Status is the power state of an instance.
type Status string

// The states. Any other state that a hypervisor reports is StatusUnknown.
const (
	StatusRunning Status = "running"
	StatusStopped Status = "stopped"
	StatusFrozen  Status = "frozen"
	// StatusBusy means that the hypervisor is carrying out an operation on the
	// instance.
	StatusBusy Status = "busy"
	// StatusHalfMade means that the creation was interrupted and does not
	// continue. The instance has never run and can only be deleted. Drivers
	// report this state only for stamped instances.
	StatusHalfMade Status = "half-made"
	StatusError    Status = "error"
	StatusUnknown  Status = "unknown"
)

// Instance is an instance as the hypervisor reports it.
type Instance struct {
	Name string
	// Stamp is nil for an instance without a stamp. If it has another
	// namespace, the caller treats the instance as foreign.
	Stamp *Stamp
	// Unreadable is true if the instance's stamp or settings are damaged, or of a
	// later version of the agent, so that Stamp is nobody's. Odd says why.
	Unreadable bool
	Status     Status
	// Standstill says why a frozen instance is frozen and how to resume it. It
	// is empty if an operator froze the instance.
	Standstill string
	// ImageID is the image of the instance, as far as the hypervisor knows.
	ImageID string
	// Arch is the architecture in Debian's terms, e.g. amd64, if the hypervisor
	// reports it.
	Arch string
	// Properties are the properties in effect, i.e. the stored properties and
	// those that the hypervisor adds, e.g. from profiles. 0 means no limit.
	Properties
	// Stored are the instance's own settings, with which it starts next.
	// Running are the settings with which it runs. Running is nil if the
	// instance does not run, or if the hypervisor applies every stored change
	// at once.
	Stored  Settings
	Running *Settings
	// Room is the room that the instance has while it runs; nil means no limit.
	Room *Room
	// RootUnlimited is true if the root disk has a limit that its pool does not
	// enforce.
	RootUnlimited bool
	Created       time.Time
	// Started is the time of the last start, if the hypervisor reports it.
	Started time.Time
	// Odd names the kind of the instance or a setting that no Machine can
	// declare, so that an adoption would lose it. It is empty if there is none.
	Odd string
	// Ports are the host's ends of the interfaces, by their names in the guest.
	// Interfaces without a bridge in the instance's configuration are left out.
	Ports map[string]Port
	// MACs are the MAC addresses of all interfaces in lower case, of running
	// and stopped instances, declared and generated.
	MACs []string
	// PID and Addresses are known only if List was called with detail.
	PID       int64
	Addresses []string
	// Raw is the driver's own data for its Diff method. Other packages do not
	// read it.
	Raw any
}

// Now returns Running, or Stored if Running is nil.
func (i Instance) Now() Settings {
	if i.Running != nil {
		return *i.Running
	}
	return i.Stored
}

// Room says how much an instance can get without a restart.
type Room struct {
	// CPUs is the largest number of processors.
	CPUs int
	// Devices is how many more NICs and disks can be plugged in, or Unlimited.
	Devices int
}

// Unlimited is the value of Room.Devices if an instance takes any number.
const Unlimited = -1

// Port is a network device of the host that leads to an instance.
type Port struct {
	Device string
	// Bridge is the configured bridge, even if it does not exist.
	Bridge string
}

// Impact is the impact of a step of any plan.
type Impact = plan.Impact

// Change is a changed field, in the form that all plans share; see package
// plan.
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
