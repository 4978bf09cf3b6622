package storageprovisioner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
)

// Plan returns the steps that turn observed into desired, in the order of their
// phases. It includes steps that wait for other steps, with the reason in
// Waiting. It is a pure function. A plan right after the success of all steps
// is empty.
func Plan(desired Desired, observed Observed, policy Policy) []Step {
	return newPlanner(desired, observed, policy).plan()
}

func (p *planner) plan() []Step {
	var steps []Step
	for i := range p.entities {
		e := &p.entities[i]
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
		for _, s := range reconcile.Withhold(p.policy.Withheld, planned) {
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
	entities    []Entity
	byName      map[string]*Machine
	volumes     map[string]*Entity   // by name
	on          map[string][]*Entity // the filesystems on each volume, by the volume's name
	volumesSeen map[string]*storage.Volume
	seen        map[string]*storage.Filesystem
	strangers   map[string]string    // the uids in the stamps of objects with an entity's name but another uid, by KIND/NAME
	views       map[string][]string  // the machines that have a view of a filesystem, by the filesystem's name
	listed      map[string][]string  // the machines that declare or use an entity, by KIND/NAME
	related     map[*Entity][]string // see machines()
}

func newPlanner(desired Desired, observed Observed, policy Policy) *planner {
	p := &planner{
		policy: policy, observed: observed, entities: desired.Entities,
		byName: make(map[string]*Machine, len(desired.Machines)), volumes: map[string]*Entity{}, on: map[string][]*Entity{},
		volumesSeen: map[string]*storage.Volume{}, seen: map[string]*storage.Filesystem{},
		strangers: map[string]string{}, views: map[string][]string{}, listed: map[string][]string{},
		related: make(map[*Entity][]string, len(desired.Entities)),
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
	for i := range desired.Entities {
		p.related[&desired.Entities[i]] = p.relatives(&desired.Entities[i])
	}
	return p
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

// delaysOf returns the delays before automatic retries after an error of this
// kind. It returns nil if the agent does not retry such an error.
func delaysOf(kind fault.Kind) func(attempt int) time.Duration {
	if kind == fault.Invalid {
		return nil
	}
	return delays.After
}
