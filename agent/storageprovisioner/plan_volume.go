package storageprovisioner

import (
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// volume plans for a volume that shall exist.
func (w *world) volume(e *Entity) []Step {
	v := w.volumesSeen[e.Name]
	needed := w.deviceNeeded(e)
	if v == nil || v.Problem != "" && !e.Status.Created {
		steps := []Step{w.absent(e, "")}
		if needed {
			steps = append(steps, Step{Action: ActionAttach, Waiting: "its creation", Held: w.both(e.Name)})
		}
		return steps
	}
	var steps []Step
	if v.Problem == "" {
		steps = append(resize(v.Size, e.Size), reallocate(v, e)...)
	}
	readOnly := w.readOnly(e)
	d, attached := device(v)
	switch {
	case !attached && needed && v.Problem == "":
		steps = append(steps, Step{Action: ActionAttach, Held: w.both(e.Name)})
	case attached && (!needed || d.ReadOnly != readOnly):
		steps = append(steps, Step{Action: ActionDetach, Waiting: w.deviceInUse(e, needed)})
		if needed {
			steps = append(steps, Step{Action: ActionAttach, Waiting: "its detachment"})
		}
	}
	return steps
}

// reallocate plans for a volume that has its space otherwise than declared.
func reallocate(v *storage.Volume, e *Entity) []Step {
	is, wanted := allocation(v.Sparse), allocation(e.Volume.Allocation == spec.AllocationSparse)
	if is == wanted {
		return nil
	}
	return []Step{{
		Action: ActionCreate, Changes: []Change{{Field: "allocation", From: is, To: wanted}},
		Held: fmt.Sprintf("its allocation is %s and cannot become %s: declare it as it was, or declare another one and move the data", is, wanted),
	}}
}

func allocation(sparse bool) string {
	if sparse {
		return spec.AllocationSparse
	}
	return spec.AllocationFull
}

// dyingVolume plans for a volume on its way out.
func (w *world) dyingVolume(e *Entity) []Step {
	v := w.volumesSeen[e.Name]
	if w.policy.Leave {
		return []Step{w.last(e, v != nil, "")}
	}
	waiting := w.deviceInUse(e, false)
	if waiting == "" && len(w.on[e.Name]) > 0 {
		waiting = w.on[e.Name][0].Key()
	}
	if v == nil {
		return []Step{w.last(e, false, waiting)}
	}
	if _, attached := device(v); attached {
		return []Step{{Action: ActionDetach, Waiting: waiting}, w.last(e, true, "its detachment")}
	}
	return []Step{w.last(e, true, waiting)}
}

// both refuses a volume that a machine shall have as a block device although a
// filesystem is made on it, or returns "": the machine would read the files in
// it and write to its mounted superblock. Documents that declare both are
// refused already; this holds whatever the store has. What is mounted, and what
// a machine was given before, stays until one of the two goes.
func (w *world) both(volume string) string {
	v := w.volumes[volume]
	if v == nil {
		return ""
	}
	for _, f := range w.on[volume] {
		for _, m := range w.listed[v.Key()] {
			if r, _ := w.relation(v, m); r == wants && f.Life == state.Alive {
				return fmt.Sprintf("machine/%s has %s as a block device and %s is made on it, and no volume can be both: take it from the machine's storage, or declare another volume for one of them",
					m, v.Key(), f.Key())
			}
		}
	}
	return ""
}

// deviceNeeded says whether the volume is to be a block device of the host.
func (w *world) deviceNeeded(e *Entity) bool {
	return w.wanted(e) || slices.ContainsFunc(w.on[e.Name], w.onDevice)
}

// onDevice says whether a filesystem on a volume needs the volume's device.
func (w *world) onDevice(f *Entity) bool {
	seen := w.seen[f.Name]
	if _, mounted := w.mounted(f); mounted {
		return true
	}
	if f.Life != state.Alive {
		return false
	}
	return w.wanted(f) || (seen == nil || unmade(f, seen)) && w.absent(f, "").Held == "" && !failedForGood(f)
}

// failedForGood says that nothing will be tried by itself, so that nothing
// needs to be held ready.
func failedForGood(e *Entity) bool {
	return e.Status.Attempts.ErrorKind != "" && e.Status.Attempts.NextRetry == nil && e.Status.ObservedGeneration >= e.Generation
}

// deviceInUse names what keeps the volume's device from being taken away, or
// "". When it is only to be attached otherwise, stopped machines do not.
func (w *world) deviceInUse(e *Entity, again bool) string {
	for _, f := range w.on[e.Name] {
		if _, mounted := w.mounted(f); mounted {
			return f.Key() + " to be unmounted"
		}
	}
	for _, m := range w.machines(e) {
		r, _ := w.relation(e, m)
		switch {
		case r == gone, r == wants && again && w.guests[m].Stopped:
		case r == wants && again:
			// What a running instance has of a device is its number, which
			// may be another volume's next.
			return "machine/" + m + " to be stopped"
		default:
			return "machine/" + m + " to let go"
		}
	}
	return ""
}

// readOnly says whether the volume's device is to refuse writes: when all that
// may use it only read.
func (w *world) readOnly(e *Entity) bool {
	if len(w.on[e.Name]) > 0 {
		return false
	}
	readers := false
	for _, m := range w.machines(e) {
		if r, a := w.relation(e, m); r == wants || r == keeps {
			if !a.ReadOnly {
				return false
			}
			readers = true
		}
	}
	return readers
}

// device returns the volume's block device.
func device(v *storage.Volume) (storage.VolumeAttachment, bool) {
	if v == nil || len(v.Attachments) == 0 {
		return storage.VolumeAttachment{}, false
	}
	return v.Attachments[0], true
}

// deviceOf returns the device of a filesystem's volume, or what it waits for.
func (w *world) deviceOf(e *Entity) (path, waiting string) {
	name := e.Filesystem.Volume
	if name == "" {
		return "", ""
	}
	v := w.volumes[name]
	d, attached := device(w.volumesSeen[name])
	switch {
	case v == nil || v.Life != state.Alive:
		return "", spec.KindVolume + "/" + name + " to be declared"
	case !attached:
		return "", spec.KindVolume + "/" + name
	case d.ReadOnly:
		return "", spec.KindVolume + "/" + name + " to be writable"
	}
	if holder := w.holder(v, e.Key()); holder != "" {
		return "", holder
	}
	return d.Device, ""
}

// holder names what has to let the entity go before to (KIND/NAME) may be given
// it, or "": two that write to a volume destroy it, and a filesystem that is
// not shared belongs to one machine. What is given already is not taken back.
func (w *world) holder(e *Entity, to string) string {
	machine, _ := strings.CutPrefix(to, spec.KindMachine+"/")
	if e.Filesystem.Shared || e.Status.Attachments[machine].Source != "" {
		return ""
	}
	if e.Kind == spec.KindVolume {
		for _, f := range w.on[e.Name] {
			if _, mounted := w.mounted(f); mounted && f.Key() != to {
				return f.Key() + " to be unmounted"
			}
		}
	}
	for _, m := range w.machines(e) {
		if r, _ := w.relation(e, m); m != machine && (r == leaving || r == keeps) {
			return spec.KindMachine + "/" + m + " to let go"
		}
	}
	return ""
}
