package spec

import "slices"

// AttachmentStatus is the status of the attachment of a volume or filesystem to
// a machine.
type AttachmentStatus struct {
	State StorageState `json:"state"`
	// Source is the path on the host that the machine gets: a directory or a block
	// device. It is set while the storage worker offers the storage.
	Source   string   `json:"source,omitempty"`
	ReadOnly bool     `json:"read-only,omitempty"`
	Message  string   `json:"message,omitempty"`
	Attempts Attempts `json:"retry,omitzero"`
}

// Phase is the phase of an attachment. The storage worker offers the volume or
// filesystem, and the machine's worker uses it. Each worker acts only on a phase
// that it has read after the last write of its own half; see
// docs/decisions/0022-attachments-have-a-phase.md.
type Phase int

// The phases. The storage worker may take the storage away only if it is free.
const (
	PhaseFree      Phase = iota // neither offered nor in use
	PhaseOffered                // offered, and not yet in use
	PhaseUsed                   // offered and in use
	PhaseWithdrawn              // no longer offered, and still in use
)

// Phase returns the attachment's phase. used is the half of the machine's
// worker; see MachineStatus.InUse.
func (a AttachmentStatus) Phase(used bool) Phase {
	switch offered := a.Source != ""; {
	case offered && used:
		return PhaseUsed
	case offered:
		return PhaseOffered
	case used:
		return PhaseWithdrawn
	}
	return PhaseFree
}

// InUse reports whether the volume or filesystem (KIND/NAME) may be in use by
// the machine. A record of an earlier version says nothing: its instance may use
// any.
func (s MachineStatus) InUse(object string) bool {
	if s.Uses == nil {
		return s.Instance != nil || s.State == MachineProvisioning
	}
	return slices.Contains(s.Uses, object)
}

// Object returns the attached volume or filesystem as KIND/NAME.
func (a Attachment) Object() string {
	if a.Volume != "" {
		return KindVolume + "/" + a.Volume
	}
	return KindFilesystem + "/" + a.Filesystem
}

// Objects returns the attached volumes and filesystems as KIND/NAME; nil: none.
func Objects(storage []Attachment) (objects []string) {
	for _, a := range storage {
		objects = append(objects, a.Object())
	}
	return objects
}

// Uses returns the new half of a machine's worker: the storage that the machine
// declares and is offered, and the storage that its instance has. A stopped
// instance gets the next offer of declared storage before its start.
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
