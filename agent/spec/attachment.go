package spec

import (
	"slices"
	"strings"
)

// AttachmentStatus is the status of the attachment of a volume or filesystem to
// a machine.
type AttachmentStatus struct {
	State StorageState `json:"state"`
	// Source is the path on the host that the machine gets: a directory or a block
	// device. It is set while the storage worker offers the storage.
	Source string `json:"source,omitempty"`
	// Privileged is true if a filesystem's Source has the owners of a privileged machine.
	Privileged bool     `json:"privileged,omitempty"`
	ReadOnly   bool     `json:"read-only,omitempty"`
	Message    string   `json:"message,omitempty"`
	Attempts   Attempts `json:"retry,omitzero"`
}

// Phase is the phase of an attachment of storage or of a network's NIC to a
// machine. The storage or network worker decides whether the attachment is
// offered, and the machine's worker whether it is in use. Each worker acts on a
// phase only if it read the phase after it last wrote its own half; see
// docs/decisions/0022-attachments-have-a-phase.md.
type Phase int

// The phases. An attachment may be taken away only if it is free.
const (
	PhaseFree      Phase = iota // neither offered nor in use
	PhaseOffered                // offered, and not yet in use
	PhaseUsed                   // offered and in use
	PhaseWithdrawn              // no longer offered, and still in use
)

// Phase returns the attachment's phase. used says whether the machine may use
// the attachment; see MachineStatus.InUse().
func (a AttachmentStatus) Phase(used bool) Phase { return phaseOf(a.Source != "", used) }

// Phase returns the phase of the NIC with these addresses. The network worker
// offers the NIC until it releases the addresses.
func (g GuestAddress) Phase(used bool) Phase {
	return phaseOf(g.Released == nil, used)
}

func phaseOf(offered, used bool) Phase {
	switch {
	case offered && used:
		return PhaseUsed
	case offered:
		return PhaseOffered
	case used:
		return PhaseWithdrawn
	}
	return PhaseFree
}

// InUse reports whether the machine may use the volume or filesystem
// (KIND/NAME) or the NIC on a network; see NICObject. A record of an earlier
// version does not list what is in use. Every object then counts as in use if
// the machine may have an instance.
func (s MachineStatus) InUse(object string) bool {
	uses := s.Uses
	if strings.HasPrefix(object, KindNetwork+"/") {
		uses = s.UsesNICs
	}
	if uses == nil {
		return s.Instance != nil || s.State == MachineProvisioning
	}
	return slices.Contains(uses, object)
}

// NICObject returns a machine's NIC on a network as network/NAME/NIC.
func NICObject(network, nic string) string { return KindNetwork + "/" + network + "/" + nic }

// NICObjects returns the NICs as network/NAME/NIC, sorted.
func NICObjects(nics map[string]NIC) (objects []string) {
	for name, nic := range nics {
		objects = append(objects, NICObject(nic.Network, name))
	}
	slices.Sort(objects)
	return objects
}

// Object returns the attached volume or filesystem as KIND/NAME.
func (a Attachment) Object() string {
	if a.Volume != "" {
		return KindVolume + "/" + a.Volume
	}
	return KindFilesystem + "/" + a.Filesystem
}

// Is reports whether the attachment is that of the volume or filesystem.
func (a Attachment) Is(kind, name string) bool {
	if a.Volume != "" {
		return kind == KindVolume && name == a.Volume
	}
	return kind == KindFilesystem && name == a.Filesystem
}

// Objects returns the attached volumes and filesystems as KIND/NAME.
func Objects(storage []Attachment) (objects []string) {
	for _, a := range storage {
		objects = append(objects, a.Object())
	}
	return objects
}

// Uses returns the attachments that a machine may use from now on. These are
// the offered attachments and those that the instance has. If the instance is
// stopped, a declared attachment counts only if it is offered, because a
// stopped instance gets the next offer before its start.
func Uses(declared, offered, has []string, stopped bool) []string {
	uses := append([]string{}, offered...)
	for _, object := range has {
		if !stopped || !slices.Contains(declared, object) {
			uses = append(uses, object)
		}
	}
	slices.Sort(uses)
	return slices.Compact(uses)
}
