package storageprovisioner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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
	case v.Unlinked: // a detachment would lose the data
	case attached && (!needed || d.ReadOnly != readOnly || d.Former && v.Problem == ""):
		waiting, stop := p.deviceInUse(e, needed)
		if stop != "" && d.ReadOnly != readOnly {
			return append(steps, otherMode(readOnly, stop))
		}
		steps = append(steps, Step{Action: ActionDetach, Waiting: because(waiting, d)})
		if needed {
			steps = append(steps, Step{Action: ActionAttach, Waiting: "its detachment"})
		}
	}
	return steps
}

// otherMode returns the held step for a volume whose device gets its declared mode
// once the machine is stopped.
func otherMode(readOnly bool, machine string) Step {
	return Step{
		Action: ActionRemount, Changes: []plan.Change{{Field: "read-only", From: strconv.FormatBool(!readOnly), To: strconv.FormatBool(readOnly)}},
		Held: fmt.Sprintf("machine/%[1]s runs with read-only: %[2]t, and its other changes wait too: `hostler stop %[1]s`, then `hostler start %[1]s`",
			machine, !readOnly),
	}
}

// because adds to the event for which a device waits why it does.
func because(waiting string, d storage.VolumeAttachment) string {
	if waiting == "" || !d.Former {
		return waiting
	}
	return waiting + ", since the volume's file was replaced and " + d.Device + " still has the former one"
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
	waiting, _ := p.deviceInUse(e, false)
	if waiting == "" && len(p.on[e.Name]) > 0 {
		waiting = p.on[e.Name][0].key()
	}
	if v == nil {
		return []Step{p.last(e, false, waiting)}
	}
	if v.Unlinked && e.Retain {
		return []Step{{Action: ActionRelease, Held: v.Problem}}
	}
	if len(v.Attachments) > 0 {
		return []Step{{Action: ActionDetach, Waiting: waiting}, p.last(e, true, "its detachment")}
	}
	return []Step{p.last(e, true, waiting)}
}

// filesystem plans for a declared filesystem.
func (p *planner) filesystem(e *Entity) []Step {
	f := p.seen[e.Name]
	_, waiting := p.deviceOf(e)
	mount, mounted := p.mounted(e)
	refused := ""
	if mounted {
		waiting = ""
	} else {
		refused = p.both(e.Filesystem.Volume)
	}
	var steps []Step
	switch {
	case f == nil, unmade(e, f):
		steps = append(steps, p.absent(e, waiting))
		waiting = "its creation"
	case !mounted && lost(e):
		steps = append(steps, Step{Action: ActionCreate, Detail: e.describe() + ", again and empty", Waiting: waiting})
		waiting = "its creation"
	case f.Problem == "":
		steps = append(steps, p.differences(e, f)...)
	}
	if refused != "" && len(steps) > 0 && steps[0].Action == ActionCreate && steps[0].Held == "" {
		steps[0].Held = refused
	}
	wanted := p.wanted(e)
	if wanted && !mounted {
		if f != nil && f.Problem != "" && !unmade(e, f) {
			waiting = "its repair"
		}
		steps = append(steps, Step{Action: ActionAttach, Waiting: waiting, Held: refused})
		waiting = "its mount on the host"
	} else if wanted && mount.Unrestricted {
		steps = append(steps, Step{Action: ActionAttach, Detail: "setuid programs and devices in it have no effect on the host"})
	}
	views, used := p.viewSteps(e, waiting)
	steps = append(steps, views...)
	if (mounted || p.held(e)) && !wanted && !f.Unlinked {
		steps = append(steps, Step{Action: ActionDetach, Waiting: used})
	}
	return steps
}

// differences plans for a filesystem that differs from its declaration.
func (p *planner) differences(e *Entity, f *storage.Filesystem) []Step {
	if e.Moved != nil {
		return e.heldMove()
	}
	if t := e.fstype(); t != "" && f.Type != "" && f.Type != t {
		return []Step{{
			Action: ActionCreate, Changes: []plan.Change{{Field: "type", From: f.Type, To: t}},
			Held: fmt.Sprintf("it is %s and cannot become %s: declare another filesystem and move the data", f.Type, t),
		}}
	}
	anew := p.remount(e, f)
	if e.Filesystem.Volume == "" {
		steps := resize(f.Size, e.Size)
		if len(steps) == 0 && f.Growable > 0 {
			steps = resize(f.Size-f.Growable, e.Size)
		}
		return append(anew, steps...)
	}
	if _, mounted := p.mounted(e); mounted && f.Growable > 0 {
		return append(anew, Step{Action: ActionGrow, Detail: "to the size of its volume", Changes: []plan.Change{{
			Field: "size", From: storage.Bytes(f.Size), To: storage.Bytes(f.Size + f.Growable),
		}}})
	}
	return anew
}

// remount plans for a filesystem that is mounted with other options than
// declared.
func (p *planner) remount(e *Entity, f *storage.Filesystem) []Step {
	if f.Options == nil || slices.Equal(f.Options, e.Filesystem.MountOptions) {
		return nil
	}
	is, declared := sorted(f.Options), sorted(e.Filesystem.MountOptions)
	if slices.Equal(is, declared) || !p.wanted(e) {
		return nil
	}
	text := func(options []string) string { return "[" + strings.Join(options, ", ") + "]" }
	return []Step{{
		Action: ActionRemount, Changes: []plan.Change{{Field: "mount-options", From: text(is), To: text(declared)}},
		Held: fmt.Sprintf("it is mounted with %s, and has %s when it is mounted next: detach it from its machines and attach it again, or restart the host",
			text(is), text(declared)),
	}}
}

func sorted(options []string) []string {
	return slices.Sorted(slices.Values(options))
}

// viewSteps plans the machines' views of a filesystem. waiting is the unmet
// precondition of new views, or "". used names a machine that still needs the
// host's mount, or is "".
func (p *planner) viewSteps(e *Entity, waiting string) (steps []Step, used string) {
	mount := p.observed.Mounts[p.policy.mountPath(e.Name)]
	for _, m := range p.machines(e) {
		r, a := p.relation(e, m)
		waiting := waiting
		if r == wants {
			waiting = cmp.Or(waiting, p.holder(e, spec.KindMachine+"/"+m))
		}
		seen, shown := p.observed.Mounts[p.policy.viewPath(m, e.Name)]
		fits := shown && waiting == "" && seen.Fits(mount.Filesystem, p.view(e, m, a))
		switch {
		case r == wants && fits, r == keeps, r == leaving && p.phase(e, m) != spec.PhaseOffered:
		case r == wants:
			if shown && waiting == "" {
				// The old view stays visible in a running instance until the
				// provisioner attaches the new view.
				steps = append(steps, Step{Action: ActionHide, Machine: m})
			}
			show := Step{Action: ActionShow, Machine: m, Waiting: waiting}
			if g := p.byName[m]; waiting == "" && !g.Privileged {
				guests := p.policy.Maps[g.Type]
				show.Waiting, show.Held = guests.Waiting, guests.Missing
			}
			steps = append(steps, show)
		case shown:
			hide := Step{Action: ActionHide, Machine: m}
			if r == leaving {
				hide.Waiting = "its offer to be withdrawn"
			}
			steps = append(steps, hide)
		}
		switch {
		case used != "":
		case r == gone && shown:
			used = "what machine/" + m + " sees of it"
		case r != gone:
			used = "machine/" + m + " to detach"
		}
	}
	return steps, used
}

// dyingFilesystem plans the removal of a filesystem.
func (p *planner) dyingFilesystem(e *Entity) []Step {
	f := p.seen[e.Name]
	if p.policy.Leave {
		return []Step{p.last(e, f != nil, "")}
	}
	steps, used := p.viewSteps(e, "")
	if f != nil && f.Unlinked && e.Retain {
		return append(steps, Step{Action: ActionRelease, Held: f.Problem})
	}
	if _, mounted := p.mounted(e); mounted || p.held(e) {
		return append(steps, Step{Action: ActionDetach, Waiting: used}, p.last(e, true, "its detachment"))
	}
	return append(steps, p.last(e, f != nil, used))
}

// absent returns the step for an entity that the host does not have.
func (p *planner) absent(e *Entity, waiting string) Step {
	switch uid, stranger := p.strangers[e.key()]; {
	case stranger && e.Status.StampUID == "" && !e.Status.Created:
		return Step{Action: ActionAdopt, Detail: "data of an earlier declaration of this name is taken over", Changes: []plan.Change{{Field: "stamp", To: uid}}}
	case e.Status.Created && !p.thereAtAll(e) && !e.requested():
		// Hold the step, because the new entity would be empty and its users
		// would not notice.
		return Step{Action: ActionCreate, Held: "its data is gone from the host; `hostler retry " + e.key() + "` makes it again, empty"}
	}
	return Step{Action: ActionCreate, Detail: e.describe(), Waiting: waiting}
}

// last returns the last step of the removal of an entity, after its detachment.
func (p *planner) last(e *Entity, there bool, waiting string) Step {
	switch {
	case !there:
		return Step{Action: ActionForget, Waiting: waiting, Detail: "no longer declared; there is no data"}
	case p.policy.Leave:
		return Step{Action: ActionRelease, Detail: "left as it is"}
	case e.Retain:
		detail := "its data is kept"
		if v := p.volumesSeen[e.Name]; e.Kind == spec.KindVolume && v != nil && v.Path != "" {
			detail += " in " + v.Path
		}
		return Step{Action: ActionRelease, Detail: detail + "; declare it again to get the data back", Waiting: waiting}
	case e.Filesystem.Volume != "":
		step := Step{Action: ActionDestroy, Detail: "no longer declared; its data goes with volume/" + e.Filesystem.Volume, Waiting: waiting}
		if v := p.volumes[e.Filesystem.Volume]; v != nil && (v.Life == state.Alive || v.Retain) {
			step.Keeps, step.Detail = true, "no longer declared; its data stays on "+v.key()
		}
		return step
	}
	return Step{Action: ActionDestroy, Detail: "no longer declared; its data is deleted", Waiting: waiting}
}

// resize plans for an entity whose size differs from the declared size. Sources
// round up, so a surplus below one rounding unit is no difference.
func resize(size, declared int64) []Step {
	const most = 64 << 10 // the largest page size of any architecture
	change := []plan.Change{{Field: "size", From: storage.Bytes(size), To: storage.Bytes(declared)}}
	switch {
	case declared == 0 || size >= declared && size-declared < most:
		return nil
	case declared < size:
		return []Step{{
			Action: ActionGrow, Changes: change,
			Held: fmt.Sprintf("it has %s and cannot shrink to %s: its data may not fit", storage.Bytes(size), storage.Bytes(declared)),
		}}
	}
	return []Step{{Action: ActionGrow, Changes: change, Detail: fmt.Sprintf("from %s to %s", storage.Bytes(size), storage.Bytes(declared))}}
}

// describe returns a short description of an entity to create, e.g. "loop, 10
// GiB, sparse".
func (e *Entity) describe() string {
	switch {
	case e.Kind == spec.KindVolume && e.Volume.Allocation == spec.AllocationSparse:
		return fmt.Sprintf("%s, %s, sparse", e.Source, storage.Bytes(e.Size))
	case e.Filesystem.Volume != "":
		return fmt.Sprintf("%s on volume/%s", e.fstype(), e.Filesystem.Volume)
	}
	return fmt.Sprintf("%s, %s", e.Source, storage.Bytes(e.Size))
}

func (e *Entity) fstype() string {
	if e.Filesystem.Type == "" && e.Filesystem.Volume != "" {
		return "ext4"
	}
	return e.Filesystem.Type
}
