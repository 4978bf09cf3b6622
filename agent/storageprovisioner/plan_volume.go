package storageprovisioner

import (
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/plan"
	"hostler/storage"
)

// volume plans for a declared volume.
func (p *planner) volume(e *Entity) []Step {
	v := p.volumesSeen[e.Name]
	needed := p.deviceNeeded(e)
	if v == nil || v.Problem != "" && !e.Status.Created {
		steps := []Step{p.absent(e, "")}
		if needed {
			steps = append(steps, Step{Action: ActionAttach, Waiting: "its creation", Held: p.both(e.Name)})
		}
		return steps
	}
	var steps []Step
	if v.Problem == "" {
		steps = append(resize(v.Size, e.Size), reallocate(v, e)...)
	}
	readOnly := p.readOnly(e)
	d, attached := device(v)
	switch {
	case !attached && needed && v.Problem == "":
		steps = append(steps, Step{Action: ActionAttach, Held: p.both(e.Name)})
	case attached && (!needed || d.ReadOnly != readOnly):
		steps = append(steps, Step{Action: ActionDetach, Waiting: p.deviceInUse(e, needed)})
		if needed {
			steps = append(steps, Step{Action: ActionAttach, Waiting: "its detachment"})
		}
	}
	return steps
}

// reallocate plans for a volume whose allocation differs from its declaration.
func reallocate(v *storage.Volume, e *Entity) []Step {
	is, wanted := allocation(v.Sparse), allocation(e.Volume.Allocation == spec.AllocationSparse)
	if is == wanted {
		return nil
	}
	return []Step{{
		Action: ActionCreate, Changes: []plan.Change{{Field: "allocation", From: is, To: wanted}},
		Held: fmt.Sprintf("its allocation is %s and cannot become %s: declare it as before, or declare another volume and move the data", is, wanted),
	}}
}

func allocation(sparse bool) string {
	if sparse {
		return spec.AllocationSparse
	}
	return spec.AllocationFull
}

// dyingVolume plans the removal of a volume.
func (p *planner) dyingVolume(e *Entity) []Step {
	v := p.volumesSeen[e.Name]
	if p.policy.Leave {
		return []Step{p.last(e, v != nil, "")}
	}
	waiting := p.deviceInUse(e, false)
	if waiting == "" && len(p.on[e.Name]) > 0 {
		waiting = p.on[e.Name][0].key()
	}
	if v == nil {
		return []Step{p.last(e, false, waiting)}
	}
	if _, attached := device(v); attached {
		return []Step{{Action: ActionDetach, Waiting: waiting}, p.last(e, true, "its detachment")}
	}
	return []Step{p.last(e, true, waiting)}
}

// both returns an error text if a volume is declared both as a machine's block
// device and for a filesystem, else "". With both, the machine could read the
// filesystem's data and write to its mounted superblock. The validation of
// documents refuses this too, but the store may still hold such records.
// Existing mounts and attachments stay until the conflict is resolved.
func (p *planner) both(volume string) string {
	v := p.volumes[volume]
	if v == nil {
		return ""
	}
	for _, f := range p.on[volume] {
		for _, m := range p.listed[v.key()] {
			if r, _ := p.relation(v, m); r == wants && f.Life == state.Alive {
				return fmt.Sprintf("machine/%s has %s as a block device and %s is made on it, and a volume cannot be both: remove it from the machine's storage, or declare a second volume",
					m, v.key(), f.key())
			}
		}
	}
	return ""
}

// deviceNeeded reports whether the volume needs a block device on the host.
func (p *planner) deviceNeeded(e *Entity) bool {
	return p.wanted(e) || slices.ContainsFunc(p.on[e.Name], p.onDevice)
}

// onDevice reports whether a filesystem on a volume needs the volume's device.
func (p *planner) onDevice(f *Entity) bool {
	seen := p.seen[f.Name]
	if _, mounted := p.mounted(f); mounted {
		return true
	}
	if f.Life != state.Alive {
		return false
	}
	return p.wanted(f) || (seen == nil || unmade(f, seen)) && p.absent(f, "").Held == "" && !failedForGood(f)
}

// failedForGood reports whether the entity failed and no retry is planned. The
// volume of such a filesystem needs no device.
func failedForGood(e *Entity) bool {
	return e.Status.Attempts.ErrorKind != "" && e.Status.Attempts.NextRetry == nil && e.Status.ObservedGeneration >= e.Generation
}

// deviceInUse returns the event for which a detach of the volume's device must
// wait, or "". again is true if the device is attached again afterwards, in
// another mode.
func (p *planner) deviceInUse(e *Entity, again bool) string {
	for _, f := range p.on[e.Name] {
		if _, mounted := p.mounted(f); mounted {
			return f.key() + " to be unmounted"
		}
	}
	for _, m := range p.machines(e) {
		r, _ := p.relation(e, m)
		switch {
		case r == gone, r == wants && again && p.phase(e, m) == spec.PhaseFree:
		case r == wants && again:
			// A running instance refers to the device by a number, which the
			// kernel may give to another volume.
			return "machine/" + m + " to be stopped"
		default:
			return "machine/" + m + " to detach"
		}
	}
	return ""
}

// readOnly reports whether the volume's device must refuse writes, because all
// its users only read.
func (p *planner) readOnly(e *Entity) bool {
	if len(p.on[e.Name]) > 0 {
		return false
	}
	readers := false
	for _, m := range p.machines(e) {
		if r, a := p.relation(e, m); r == wants || r == keeps {
			if !a.ReadOnly {
				return false
			}
			readers = true
		}
	}
	return readers
}

// device returns the volume's block device. The second result is false if it
// has none.
func device(v *storage.Volume) (storage.VolumeAttachment, bool) {
	if v == nil || len(v.Attachments) == 0 {
		return storage.VolumeAttachment{}, false
	}
	return v.Attachments[0], true
}

// deviceOf returns the path of the device of a filesystem's volume, or in
// waiting the unmet precondition. It returns "" twice if the filesystem has no
// volume.
func (p *planner) deviceOf(e *Entity) (path, waiting string) {
	name := e.Filesystem.Volume
	if name == "" {
		return "", ""
	}
	v := p.volumes[name]
	d, attached := device(p.volumesSeen[name])
	switch {
	case v == nil || v.Life != state.Alive:
		return "", spec.KindVolume + "/" + name + " to be declared"
	case !attached:
		return "", spec.KindVolume + "/" + name
	case d.ReadOnly:
		return "", spec.KindVolume + "/" + name + " to be writable"
	}
	if holder := p.holder(v, e.key()); holder != "" {
		return "", holder
	}
	return d.Device, ""
}

// holder names the user that must release the entity before the user `to`
// (KIND/NAME) gets it, or returns "". Two writers would destroy a volume, and a
// filesystem that is not shared belongs to one machine. An entity that `to`
// already has stays with `to`.
func (p *planner) holder(e *Entity, to string) string {
	machine, _ := strings.CutPrefix(to, spec.KindMachine+"/")
	if e.Filesystem.Shared || e.Status.Attachments[machine].Source != "" {
		return ""
	}
	if e.Kind == spec.KindVolume {
		for _, f := range p.on[e.Name] {
			if _, mounted := p.mounted(f); mounted && f.key() != to {
				return f.key() + " to be unmounted"
			}
		}
	}
	for _, m := range p.machines(e) {
		if r, _ := p.relation(e, m); m != machine && (r == leaving || r == keeps) {
			return spec.KindMachine + "/" + m + " to detach"
		}
	}
	return ""
}
