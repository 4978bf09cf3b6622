package storageprovisioner

import (
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// Shown returns the steps that a plan shows to the user. It leaves out
// attachments that are part of a creation, detachments that are part of a
// removal, and the host's own mounts.
func Shown(steps []Step) []Step {
	about := map[string]bool{} // KIND/NAMEs that are created or removed
	for _, s := range steps {
		switch s.Action {
		case ActionCreate, ActionAdopt, ActionDestroy, ActionRelease, ActionForget:
			about[s.Kind+"/"+s.Name] = true
		}
	}
	var shown []Step
	for _, s := range steps {
		key := s.Kind + "/" + s.Name
		anew := s.Action == ActionHide && slices.ContainsFunc(steps, func(o Step) bool {
			return o.Action == ActionShow && o.Kind == s.Kind && o.Name == s.Name && o.Machine == s.Machine
		})
		switch {
		case s.Held != "":
		case anew:
			continue
		case s.Action == ActionShow, s.Action == ActionHide, s.Kind == spec.KindVolume && (s.Action == ActionAttach || s.Action == ActionDetach):
			if about[key] {
				continue
			}
		case s.Action == ActionAttach, s.Action == ActionDetach:
			continue
		}
		shown = append(shown, s)
	}
	return shown
}

// Preparing returns steps that show which packages the creation of filesystems
// in steps will install on the host. Each package appears once, with the first
// filesystem that needs the package.
func (s Sources) Preparing(d Desired, steps []Step) (before []Step) {
	shown, filesystems := map[string]bool{}, map[string]*Entity{}
	for i := range d.Entities {
		if e := &d.Entities[i]; e.Kind == spec.KindFilesystem {
			filesystems[e.Name] = e
		}
	}
	for _, step := range steps {
		e := filesystems[step.Name]
		if step.Action != ActionCreate || step.Kind != spec.KindFilesystem || step.Held != "" || e == nil {
			continue
		}
		source, ok := s.Filesystems[e.Source].(storage.Dependent)
		if !ok {
			continue
		}
		if pkg := source.Missing(e.fstype()); pkg != "" && !shown[pkg] {
			shown[pkg] = true
			before = append(before, Step{Kind: e.Kind, Name: e.Name, Action: ActionPrepare, Detail: "the package " + pkg + " is installed on the host"})
		}
	}
	return before
}

// ReadyObjects returns the objects with the statuses that volumes and
// filesystems have once everything is as declared. The plan of the machines
// uses these statuses to predict attachments.
func ReadyObjects(objects []state.Object, d Desired, o Observed, policy Policy) []state.Object {
	p := newPlanner(d, o, policy)
	objects = slices.Clone(objects)
	places := map[state.ID]int{}
	for i, o := range objects {
		places[o.ID] = i
	}
	for i := range d.Entities {
		e := &d.Entities[i]
		status := e.Status
		status.Attachments = map[string]spec.AttachmentStatus{}
		if e.Kind == spec.KindVolume {
			status.Size = max(status.Size, storage.RoundSize(e.Size))
		}
		for _, machine := range p.machines(e) {
			r, a := p.relation(e, machine)
			switch {
			case r == keeps:
				status.Attachments[machine] = e.Status.Attachments[machine]
				continue
			case r != wants:
				continue
			}
			offer := spec.AttachmentStatus{State: spec.StorageAttached, ReadOnly: a.ReadOnly, Source: policy.viewPath(machine, e.Name), Privileged: p.byName[machine].Privileged}
			if e.Kind == spec.KindVolume {
				offer.Source, offer.Privileged = unknownDevice, false
				if d, attached := device(p.volumesSeen[e.Name]); attached {
					if _, stop := p.deviceInUse(e, true); stop != "" && (d.Former || d.ReadOnly != p.readOnly(e)) {
						continue // the offer is withdrawn until that machine is stopped
					}
					offer.Source = d.Device
				}
			}
			status.Attachments[machine] = offer
		}
		if at, there := places[state.ID{Kind: e.Kind, Name: e.Name}]; there {
			objects[at].Status = spec.Encode(status)
		}
	}
	return objects
}

// unknownDevice stands for the device of a volume that is not yet attached.
const unknownDevice = "/dev/loop?"
