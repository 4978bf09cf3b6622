package storageprovisioner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/plan"
	"hostler/storage"
	"hostler/storage/idmap"
)

// Plan returns the steps that turn observed into desired, in the order of their
// phases. It includes steps that wait for other steps, with the reason in
// Waiting. It is a pure function. A plan right after the success of all steps
// is empty.
func Plan(desired Desired, observed Observed, policy Policy) []Step {
	p := newPlanner(desired, observed, policy)
	var steps []Step
	for i := range desired.Entities {
		e := &desired.Entities[i]
		if p.observed.Blind[e.Source] != nil {
			continue
		}
		var planned []Step
		switch {
		case e.Kind == spec.KindVolume && e.Life == state.Alive:
			planned = p.volume(e)
		case e.Kind == spec.KindVolume:
			planned = p.dyingVolume(e)
		case e.Life == state.Alive:
			planned = p.filesystem(e)
		default:
			planned = p.dyingFilesystem(e)
		}
		for _, s := range reconcile.Withhold(policy.Withheld, planned) {
			s.Kind, s.Name = e.Kind, e.Name
			if s.Waiting == "" && s.Held == "" {
				s.Held, s.After = p.gate(e, s)
			}
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.phase(), b.phase()), strings.Compare(a.Name, b.Name), strings.Compare(a.Machine, b.Machine))
	})
	return steps
}

// planner indexes one observation and the declared storage.
type planner struct {
	policy      Policy
	observed    Observed
	byName      map[string]*Machine
	volumes     map[string]*Entity   // by name
	on          map[string][]*Entity // the filesystems on each volume, by the volume's name
	volumesSeen map[string]*storage.Volume
	seen        map[string]*storage.Filesystem
	strangers   map[string]string   // the uids in the stamps of objects with an entity's name but another uid, by KIND/NAME
	views       map[string][]string // the machines that have a view of a filesystem, by the filesystem's name
	listed      map[string][]string // the machines that declare or use an entity, by KIND/NAME
}

func newPlanner(desired Desired, observed Observed, policy Policy) *planner {
	p := &planner{
		policy: policy, observed: observed,
		byName: make(map[string]*Machine, len(desired.Machines)), volumes: map[string]*Entity{}, on: map[string][]*Entity{},
		volumesSeen: map[string]*storage.Volume{}, seen: map[string]*storage.Filesystem{},
		strangers: map[string]string{}, views: map[string][]string{}, listed: map[string][]string{},
	}
	for i := range desired.Machines {
		g := &desired.Machines[i]
		p.byName[g.Name] = g
		for _, object := range slices.Concat(spec.Objects(g.Storage), g.Status.Uses) {
			p.listed[object] = append(p.listed[object], g.Name)
		}
	}
	type named struct{ source, id string }
	volumes, filesystems := map[named]*storage.Volume{}, map[named]*storage.Filesystem{}
	for source, all := range observed.Volumes {
		for i := range all {
			volumes[named{source, all[i].ID}] = &all[i]
		}
	}
	for source, all := range observed.Filesystems {
		for i := range all {
			filesystems[named{source, all[i].ID}] = &all[i]
		}
	}
	for i := range desired.Entities {
		e := &desired.Entities[i]
		key := named{e.Source, e.Name}
		if e.Kind == spec.KindVolume {
			p.volumes[e.Name] = e
			if v := volumes[key]; v != nil && p.is(e, v.Ref) {
				p.volumesSeen[e.Name] = v
			}
			continue
		}
		if e.Filesystem.Volume != "" {
			p.on[e.Filesystem.Volume] = append(p.on[e.Filesystem.Volume], e)
		}
		if f := filesystems[key]; f != nil && p.is(e, f.Ref) {
			p.seen[e.Name] = f
		}
	}
	for path := range observed.Mounts {
		rest, ok := strings.CutPrefix(path, policy.Views+"/")
		machine, filesystem, two := strings.Cut(rest, "/")
		if ok && two {
			p.views[filesystem] = append(p.views[filesystem], machine)
		}
	}
	return p
}

// is reports whether an observed object with the entity's name belongs to the
// entity. An object with an empty uid has a damaged stamp and belongs to the
// entity, too.
func (p *planner) is(e *Entity, found storage.Ref) bool {
	if found.Stamp.UID == "" || found == e.ref(p.policy.Namespace) {
		return true
	}
	p.strangers[e.key()] = found.Stamp.UID
	return false
}

// relation says what a machine has and wants of an entity.
type relation int

const (
	// gone means that the machine has no attachment of the entity and wants
	// none.
	gone relation = iota
	// leaving means that the machine must let go of the entity, because it no
	// longer declares the entity or because the entity is being removed.
	leaving
	// keeps means that the machine is being removed and that its instance uses
	// the entity until the removal.
	keeps
	// wants means that the machine declares the entity.
	wants
)

// relation returns a machine's relation to an entity and the declared
// attachment.
func (p *planner) relation(e *Entity, machine string) (relation, spec.Attachment) {
	g := cmp.Or(p.byName[machine], &Machine{})
	a, has := g.has(e)
	switch phase := p.phase(e, machine); {
	case has && !g.Dying && e.Life == state.Alive:
		return wants, a
	case has && g.Dying && g.Status.InUse(e.key()):
		return keeps, a
	case has && !g.Dying, phase != spec.PhaseFree:
		return leaving, a
	}
	return gone, a
}

// phase returns the phase of the entity's attachment to a machine.
func (p *planner) phase(e *Entity, machine string) spec.Phase {
	g := p.byName[machine]
	return e.Status.Attachments[machine].Phase(g != nil && g.Status.InUse(e.key()))
}

// machines returns the sorted names of the machines that declare or use the
// entity, have an attachment of it in its status, or have a view of it.
func (p *planner) machines(e *Entity) []string {
	names := slices.Clone(p.listed[e.key()])
	for name := range e.Status.Attachments {
		names = append(names, name)
	}
	if e.Kind == spec.KindFilesystem {
		names = append(names, p.views[e.Name]...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// wanted reports whether any machine declares the entity.
func (p *planner) wanted(e *Entity) bool {
	for _, m := range p.machines(e) {
		if r, _ := p.relation(e, m); r == wants {
			return true
		}
	}
	return false
}

// gate returns the reason why a step is held, or "", and the earliest time for
// the step. A failure delays only steps of the failed action, not the entity's
// other steps.
func (p *planner) gate(e *Entity, s Step) (held string, after time.Time) {
	attempts := attemptsOf(e.Status, s.Action)
	if s.Machine != "" {
		attempts = e.Status.Attachments[s.Machine].Attempts
	}
	if e.Status.ObservedGeneration < e.Generation || p.policy.Nudged[e.key()] {
		return "", time.Time{}
	}
	open, after := reconcile.Gate(attempts, p.policy.Now, delays.After(attempts.Count))
	if !open {
		held = "it failed and will not be retried until its declaration changes"
	}
	return held, after
}

// absent returns the step for an entity that the host does not have.
func (p *planner) absent(e *Entity, waiting string) Step {
	switch uid, stranger := p.strangers[e.key()]; {
	case stranger && e.Status.StampUID == "" && !e.Status.Created:
		return Step{Action: ActionAdopt, Detail: "data of an earlier declaration of this name is taken over", Changes: []plan.Change{{Field: "stamp", To: uid}}}
	case e.Status.Created && !p.thereAtAll(e) && e.Status.ObservedGeneration >= e.Generation:
		// Hold the step, because the new entity would be empty and its users
		// would not notice.
		return Step{Action: ActionCreate, Held: "its data is gone from the host; `hostler retry " + e.key() + "` makes it again, empty"}
	}
	return Step{Action: ActionCreate, Detail: e.describe(), Waiting: waiting}
}

// thereAtAll reports whether the host has the entity, intact or damaged.
func (p *planner) thereAtAll(e *Entity) bool {
	return p.volumesSeen[e.Name] != nil && e.Kind == spec.KindVolume || p.seen[e.Name] != nil && e.Kind == spec.KindFilesystem
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

// view returns the parameters of a machine's view of a filesystem.
func (p *planner) view(e *Entity, machine string, a spec.Attachment) idmap.Params {
	params := idmap.Params{
		Source: p.policy.mountPath(e.Name), Path: p.policy.viewPath(machine, e.Name), ReadOnly: a.ReadOnly,
		Setuid: !slices.Contains(e.Filesystem.MountOptions, "nosuid"),
	}
	if g := p.byName[machine]; g != nil && !g.Privileged {
		params.Map = &p.policy.Map
	} else {
		// Only the host's root can create device nodes. Root in a privileged
		// guest is the host's root, so its view has devices.
		params.Devices = !slices.Contains(e.Filesystem.MountOptions, "nodev")
	}
	return params
}

// delaysOf returns the delays before automatic retries after an error of this
// kind. It returns nil if the agent does not retry such an error.
func delaysOf(kind fault.Kind) func(attempt int) time.Duration {
	if kind == fault.Invalid {
		return nil
	}
	return delays.After
}
