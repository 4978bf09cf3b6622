package storageprovisioner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/plan"
	"hostler/storage"
)

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
	if (mounted || p.held(e)) && !wanted {
		steps = append(steps, Step{Action: ActionDetach, Waiting: used})
	}
	return steps
}

// unmade reports whether the creation of the filesystem is not complete.
func unmade(e *Entity, f *storage.Filesystem) bool {
	return f.Unmade || f.Problem != "" && !e.Status.Created
}

// lost reports whether the filesystem's data was missing at the last attach,
// and the operator has since requested an empty replacement.
func lost(e *Entity) bool {
	return failedAction(e.Status) == ActionAttach && e.Status.Attempts.ErrorKind == string(fault.NotFound) && e.Status.ObservedGeneration < e.Generation
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
	is, declared := sorted(f.Options), sorted(e.Filesystem.MountOptions)
	if f.Options == nil || slices.Equal(is, declared) || !p.wanted(e) {
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
			if waiting == "" && !p.byName[m].Privileged {
				show.Held = p.policy.NoMap
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
	if _, mounted := p.mounted(e); mounted || p.held(e) {
		return append(steps, Step{Action: ActionDetach, Waiting: used}, p.last(e, true, "its detachment"))
	}
	return append(steps, p.last(e, f != nil, used))
}

// mounted returns the host's mount of a filesystem.
func (p *planner) mounted(e *Entity) (storage.FilesystemAttachment, bool) {
	f := p.seen[e.Name]
	if f == nil {
		return storage.FilesystemAttachment{}, false
	}
	at := slices.IndexFunc(f.Attachments, func(a storage.FilesystemAttachment) bool { return a.Path == p.policy.mountPath(e.Name) })
	if at < 0 {
		return storage.FilesystemAttachment{}, false
	}
	return f.Attachments[at], true
}

// held reports whether an unmounted filesystem still has a device of the host,
// because its detachment stopped half-way.
func (p *planner) held(e *Entity) bool { return p.seen[e.Name] != nil && p.seen[e.Name].Held != "" }
