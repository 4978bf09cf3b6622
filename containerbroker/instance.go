package containerbroker

import (
	"time"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// MaxAddresses bounds how many addresses of a guest are kept and tried: the
// guest itself may tell any number.
const MaxAddresses = 32

// Stamp is the mark that every object made by hostler bears. Instances
// without it, or with that of another namespace, are foreign.
type Stamp struct {
	// Namespace is that of the agent that made the object.
	Namespace string
	// UID is the identity of the declared object.
	UID string
	// Token is that of the create which made the object: fresh per attempt.
	Token string
	// Record is the declared machine as JSON, enough to write its record again
	// when the store was lost. At most 48 KiB.
	Record string
	// Store says which store's agent stamped the object, and at which revision
	// of it; drivers keep it and never compare it. At most 256 printable bytes.
	// Empty: an earlier version of the agent did.
	Store string
}

// Is says whether the stamp is of the same namespace, UID and token as other,
// whatever their records; nil is no stamp.
func (s *Stamp) Is(other Stamp) bool {
	return s != nil && s.Namespace == other.Namespace && s.UID == other.UID && s.Token == other.Token
}

// MayStamp says why an instance that bears have may not be given the stamp to by
// a caller who saw seen; nil: it may.
func MayStamp(have, seen *Stamp, to Stamp) error {
	switch {
	case have.Is(to):
		return nil
	case have != nil && have.Namespace != to.Namespace:
		return fault.New(fault.Conflict, "it belongs to namespace %q", have.Namespace)
	case have == nil && seen == nil, seen != nil && have.Is(*seen):
		return nil
	}
	return fault.New(fault.Conflict, "it bears another stamp than before")
}

// MayUnstamp is MayStamp for the removal of a stamp.
func MayUnstamp(have *Stamp, seen Stamp) error {
	if have == nil || have.Is(seen) {
		return nil
	}
	return fault.New(fault.Conflict, "it bears another stamp than before")
}

// Machine is a machine as a driver needs it: every default filled in, every
// reference resolved. It bears no policy.
type Machine struct {
	Name  string
	Stamp Stamp
	// ImageID is the hypervisor's id of the image (ImageStore.EnsureImage);
	// empty in a Diff means: do not compare.
	ImageID string
	// CPUs is the number of processors; 0 leaves the hypervisor's default.
	CPUs int
	// Memory and RootDisk are limits in bytes; 0 leaves the default.
	Memory, RootDisk int64
	// Pool is the storage pool of the root disk; empty: the hypervisor's own.
	Pool       string
	Autostart  bool
	Privileged bool
	Nesting    bool
	// Guest is what cloud-init is told.
	Guest cloudinit.Guest
	// KeepGuest leaves what an existing guest was told as it is: an instance
	// that was taken over must not run its first boot again.
	KeepGuest bool
	// RerunFirstBoot: changed user-data makes cloud-init run its first boot
	// again at the guest's next start. Without it the user-data of an existing
	// guest stays as it is.
	RerunFirstBoot bool
	// NICs are its network interfaces, by the order of their names; none: those
	// of the hypervisor's default.
	NICs []NIC
	// Disks are what is attached besides the root disk, by the order of their
	// names.
	Disks []Disk
	// ExpectAddress says that readiness includes an address; with NICs it does
	// in any case, one on each of which the addresses are known.
	ExpectAddress bool
}

// Status is the power state of an instance.
type Status string

// The states. Anything a hypervisor reports beyond them is StatusUnknown.
const (
	StatusRunning Status = "running"
	StatusStopped Status = "stopped"
	StatusFrozen  Status = "frozen"
	// StatusBusy: the hypervisor is in the middle of an operation on it.
	StatusBusy Status = "busy"
	// StatusHalfMade: its create was cut short and nothing goes on with it. It
	// has never run and can only be deleted. A driver tells it of stamped
	// instances alone.
	StatusHalfMade Status = "half-made"
	StatusError    Status = "error"
	StatusUnknown  Status = "unknown"
)

// Instance is an instance as the hypervisor reports it.
type Instance struct {
	Name string
	// Stamp is nil for a foreign instance. An instance stamped by another
	// namespace is returned with that stamp; the caller treats it as foreign.
	Stamp  *Stamp
	Status Status
	// Standstill says why a frozen instance stands still, and how to have it go
	// on; empty: by hand.
	Standstill string
	// ImageID is the image it was made from, as far as the hypervisor knows.
	ImageID string
	// Arch is the architecture in Debian's words, where the hypervisor tells it.
	Arch             string
	CPUs             int
	Memory, RootDisk int64 // bytes; 0: no limit set
	// RootUnlimited: a limit of its root disk is set, and its pool has none.
	RootUnlimited bool
	Autostart     bool
	Privileged    bool
	Nesting       bool
	Created       time.Time
	// Started is when it was last started, where the hypervisor tells it.
	Started time.Time
	// Odd says which of its settings no Machine can ask for, and would be lost
	// if it were one's; empty: none.
	Odd string
	// Ports are the host's ends of its interfaces, by their names inside, as
	// far as they are on a bridge that the instance names.
	Ports map[string]Port
	// MACs are the MAC addresses of its interfaces, in lower case, whoever gave
	// them to it and whether it runs or not.
	MACs []string
	// PID and Addresses are filled in only by List with detail.
	PID       int64
	Addresses []string
	// Raw is the driver's own view, used by its Diff; opaque to all others.
	Raw any
}

// Port is a network device of the host that leads to an instance.
type Port struct {
	Device string
	// Bridge is the one that it belongs under, whether it is there or not.
	Bridge string
}

// Impact is what a change does to a running instance.
type Impact string

// The impacts, in rising order.
const (
	ImpactNone     Impact = "none"
	ImpactLive     Impact = "live"
	ImpactRestart  Impact = "restart"
	ImpactRecreate Impact = "recreate"
	ImpactDestroy  Impact = "destroy"
)

// Change is one field that differs from the declaration.
type Change struct {
	Field string
	// From and To are for people; secrets are never put here (a changed
	// user-data reads "(changed)").
	From, To string
	Impact   Impact
	// Reason says why the impact is more than live.
	Reason string
}

// Worst returns the highest impact among changes.
func Worst(changes []Change) Impact {
	order := map[Impact]int{ImpactNone: 0, ImpactLive: 1, ImpactRestart: 2, ImpactRecreate: 3, ImpactDestroy: 4}
	worst := ImpactNone
	for _, c := range changes {
		if order[c.Impact] > order[worst] {
			worst = c.Impact
		}
	}
	return worst
}
