package provisioner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// intentGrace is the time for which the removal of a machine waits for the
// instance of a create that began before a crash. The hypervisor records an
// instance within milliseconds of the request. If a listing after this time
// lacks the instance, the request never arrived.
const intentGrace = 5 * time.Second

// arrival returns the time until which an instance of the machine may still
// appear from a create that has begun. It returns zero if none can appear.
func arrival(intents []state.Intent, uid string, now time.Time) (until time.Time) {
	for _, in := range intents {
		if due := in.Began.Add(intentGrace); in.UID == uid && due.After(until) && reconcile.Pending(due, now, intentGrace) {
			until = due
		}
	}
	return until
}

// Plan returns the steps that turn observed into desired, in the order of their
// execution. It is a pure function. If all steps succeed, the next plan is
// empty. From an incomplete observation Plan plans nothing.
func Plan(desired []Desired, observed Observed, policy Policy) []Step {
	if !observed.Complete {
		return nil
	}
	p := newPlanner(desired, observed, policy)
	var planned [][]Step // those of a machine together
	total, removing := 0, 0
	add := func(steps []Step) {
		if len(steps) == 0 {
			return
		}
		planned = append(planned, steps)
		for i := range steps {
			total++
			if steps[i].removes() {
				removing++
			}
		}
	}
	for i := range desired {
		switch d := &desired[i]; {
		case policy.Busy[d.Name] || d.migrates():
		case d.Life == state.Alive:
			add(p.alive(d))
		default:
			add(p.dying(d))
		}
	}
	for _, s := range p.unknown() {
		add([]Step{s})
	}
	slices.SortStableFunc(planned, func(a, b []Step) int { return strings.Compare(a[0].Machine, b[0].Machine) })
	// Steps are large, so each is copied once.
	ordered := make([]Step, total)
	removals, others := ordered[:0:removing], ordered[removing:removing]
	for _, steps := range planned {
		for i := range steps {
			if steps[i].removes() {
				removals = append(removals, steps[i])
			} else {
				others = append(others, steps[i])
			}
		}
	}
	return reconcile.Withhold(policy.Withheld, ordered)
}

// planner indexes one observation.
type planner struct {
	policy  Policy
	desired []Desired
	records map[string]bool // by uid
	byUID   map[string]*containerbroker.Instance
	byName  map[string]*containerbroker.Instance
	all     []containerbroker.Instance
	intents map[string][]state.Intent // by uid
}

func newPlanner(desired []Desired, observed Observed, policy Policy) *planner {
	p := &planner{
		policy:  policy,
		desired: desired,
		records: make(map[string]bool, len(desired)),
		byUID:   ownInstances(desired, observed.Instances, policy.owner()),
		byName:  make(map[string]*containerbroker.Instance, len(observed.Instances)),
		all:     observed.Instances,
		intents: map[string][]state.Intent{},
	}
	for _, d := range desired {
		p.records[d.UID] = true
	}
	for i := range observed.Instances {
		p.byName[observed.Instances[i].Name] = &observed.Instances[i]
	}
	for _, in := range observed.Intents {
		p.intents[in.UID] = append(p.intents[in.UID], in)
	}
	return p
}

// alive plans for a machine that is declared.
func (p *planner) alive(d *Desired) []Step {
	inst := p.byUID[d.UID]
	if inst == nil {
		if other := p.byName[d.instanceName()]; other != nil {
			return []Step{p.conflict(d, other)}
		}
		return p.absent(d)
	}
	if inst.Name != d.instanceName() {
		return []Step{d.conflict(inst, fmt.Sprintf("its instance was renamed to %q; rename it back to %q", inst.Name, d.instanceName()))}
	}
	if why := p.strangeToken(d, inst); why != "" {
		return []Step{d.conflict(inst, why)}
	}
	if steps, unfinished := p.unfinished(d, inst); unfinished {
		return steps
	}
	inst = known(d, inst)
	var steps []Step
	if d.Status.Instance == nil {
		steps = append(steps, d.step(ActionRecord, inst, "the instance was found by its stamp"))
	}
	if inst.Status == containerbroker.StatusBusy || inst.Status == containerbroker.StatusUnknown {
		return steps
	}
	open, after := p.gate(d)
	if !open {
		return append(steps, p.planFailed(d, inst)...)
	}
	for _, s := range p.present(d, inst) {
		if s.Held == "" && after.After(s.After) {
			s.After = after
		}
		steps = append(steps, s)
	}
	return steps
}

// conflict returns a held step for a machine whose instance's name is taken by
// the instance other. The step says who owns other and how to free the name.
func (p *planner) conflict(d *Desired, other *containerbroker.Instance) Step {
	held := fmt.Sprintf("an instance named %q exists that hostler did not make: rename it, or take it over with `hostler adopt %s/%s`",
		other.Name, d.Record.Machine.Type, other.Name)
	switch {
	case other.Stamp != nil && other.Stamp.Namespace != p.policy.Namespace:
		held = fmt.Sprintf("an instance named %q belongs to another agent (namespace %q): rename the machine or the instance", other.Name, other.Stamp.Namespace)
	case other.Stamp != nil && !p.policy.owner().Owns(*other):
		held = fmt.Sprintf("an instance named %q has the stamp of another store: take it over with `hostler adopt %s/%s`, "+
			"or, if another agent uses this namespace too, give one of the agents another namespace", other.Name, d.Record.Machine.Type, other.Name)
	case p.machineOf(other) != "":
		held = fmt.Sprintf("the instance named %q is that of machine/%s, which was renamed: give this machine another name", other.Name, p.machineOf(other))
	case other.Stamp != nil && MadeAs(*other, d.Record.Machine.Type) != "":
		held = fmt.Sprintf("an instance named %q was made for a machine of type %s: take it over with `hostler adopt %s/%s`, or delete it with the hypervisor's tools",
			other.Name, MadeAs(*other, d.Record.Machine.Type), d.Record.Machine.Type, other.Name)
	case other.Stamp != nil && p.policy.Lineage.Of(other.Stamp.Store) != spec.OriginOurs:
		held = fmt.Sprintf("an instance named %q was made after this store was copied: take it over with `hostler adopt %s/%s`",
			other.Name, d.Record.Machine.Type, other.Name)
	case other.Stamp != nil:
		held = fmt.Sprintf("an instance named %q is left over from an earlier record: delete it with `hostler harvest unknown`, or take it over with `hostler adopt %s/%s`",
			other.Name, d.Record.Machine.Type, other.Name)
	}
	return d.conflict(other, held)
}

// strangeToken returns a message if the agent did not create inst, which has
// the machine's uid. In this case the instance's token is neither in the status
// nor in an open intent. Otherwise strangeToken returns "".
func (p *planner) strangeToken(d *Desired, inst *containerbroker.Instance) string {
	if d.Status.Instance != nil && d.Status.Instance.Token == inst.Stamp.Token {
		return ""
	}
	for _, in := range p.intents[d.UID] {
		if in.Token == inst.Stamp.Token {
			return ""
		}
	}
	return fmt.Sprintf("the instance %q has the machine's stamp with a token of no create of this agent: take it over with `hostler adopt %s/%s`, or delete it",
		inst.Name, d.Record.Machine.Type, inst.Name)
}

// gate decides whether the failures of d permit a step. If so, open is true,
// and after is the earliest time for the step.
func (p *planner) gate(d *Desired) (open bool, after time.Time) {
	attempts := d.Status.Attempts
	kind := fault.Kind(attempts.ErrorKind)
	over := kind == fault.Conflict && attempts.NextRetry == nil // the conflict has ended
	if d.Status.ObservedGeneration < d.Generation || p.nudged(d) || p.wantEnded(d, kind) || over {
		return true, time.Time{}
	}
	return reconcile.Gate(attempts, p.policy.Now, p.policy.LongestDelay)
}

// absent plans for a machine without an instance.
func (p *planner) absent(d *Desired) []Step {
	open, after := p.gate(d)
	if !open || len(d.Waiting) > 0 && !p.policy.AssumeReady {
		return nil
	}
	m := d.Record.Machine
	detail := fmt.Sprintf("%s from %s", m.Type, oneline.Address(m.Image))
	if d.Status.Instance != nil {
		detail += ", again: its instance is gone"
	}
	if !d.wantsRunning() {
		detail += ", left stopped"
	}
	create := d.step(ActionCreate, nil, detail)
	create.After = after
	return []Step{create}
}

// present plans for a machine whose instance exists.
func (p *planner) present(d *Desired, inst *containerbroker.Instance) []Step {
	live, restart, recreate := p.differences(d, inst)
	if len(recreate) > 0 && d.allows(containerbroker.ImpactRecreate) {
		return []Step{d.change(ActionRecreate, inst, slices.Concat(recreate, restart, live), "deleted and made again: ")}
	}
	if held, ineffective := ineffectiveRestart(d, inst, restart); ineffective {
		return []Step{held}
	}
	steps := d.held(inst, recreate, restart)
	asked := restartDue(d, inst, p.policy.Now)
	running := inst.Status == containerbroker.StatusRunning
	resumes := inst.Status == containerbroker.StatusFrozen && d.Record.RetryRequest > d.Status.RetriesDone
	restarts := running && (asked || len(restart) > 0 && d.allows(containerbroker.ImpactRestart))
	if (resumes || restarts) && d.wantsRunning() && len(d.Waiting) == 0 {
		// The instance may refuse a change, e.g. a limit below the memory in use, which
		// a frozen guest cannot free. A restart makes the change if it is stored, and
		// else it is tried again after the restart or the resume.
		live = slices.DeleteFunc(live, func(c containerbroker.Change) bool {
			return restarts && c.Stored || failedFor(d.Status.FailedStep, c) && !isDevice(c)
		})
	}
	if len(live) > 0 {
		steps = append(steps, d.change(ActionUpdate, inst, live, "changed without a restart: "))
	}
	if len(d.Waiting) > 0 && d.wantsRunning() {
		return steps
	}
	switch {
	case !d.wantsRunning() && inst.Status != containerbroker.StatusStopped:
		return append(steps, d.step(ActionStop, inst, "declared as not running"))
	case !d.wantsRunning():
		return steps
	case running && len(restart) > 0 && (asked || d.allows(containerbroker.ImpactRestart)):
		return append(steps, d.change(ActionRestart, inst, restart, "restarted to change "))
	case running && asked:
		return append(steps, d.step(ActionRestart, inst, "restarted as asked"))
	case inst.Status == containerbroker.StatusStopped:
		return append(steps, p.start(d, inst))
	case resumes:
		return append(steps, d.step(ActionStart, inst, "resumed as asked"))
	case running && !isReady(&d.Status):
		return append(steps, d.step(ActionReady, inst, "booting"))
	}
	return steps
}

// held returns held steps for the changes that wait for the user's permission, or
// for the user to resume the instance.
func (d *Desired) held(inst *containerbroker.Instance, recreate, restart []containerbroker.Change) []Step {
	var steps []Step
	add := func(a Action, changes []containerbroker.Change) {
		if len(changes) == 0 {
			return
		}
		s := d.change(a, inst, changes, "changes ")
		switch {
		case !d.allows(s.Impact):
			s.Held, s.Allow = "--allow "+string(s.Impact), s.Impact
		case a == ActionRestart && inst.Status == containerbroker.StatusFrozen:
			s.Held = fmt.Sprintf("`hostler start %s`, because it is frozen", d.Name)
		default:
			return
		}
		steps = append(steps, s)
	}
	add(ActionRecreate, recreate)
	add(ActionRestart, restart)
	return steps
}

// dying plans for a machine that is being removed.
func (p *planner) dying(d *Desired) []Step {
	inst := known(d, p.byUID[d.UID])
	// An instance whose create never finished has no data to keep.
	released := d.released() && inst != nil && inst.Status != containerbroker.StatusHalfMade
	switch {
	case inst == nil:
		forget := d.step(ActionForget, nil, "there is no instance")
		forget.After = arrival(p.intents[d.UID], d.UID, p.policy.Now)
		return []Step{forget}
	case inst.Status != containerbroker.StatusHalfMade && p.strangeToken(d, inst) != "":
		return []Step{d.step(ActionForget, inst, "its instance is foreign and is not changed")}
	case !released && !p.policy.Harvest.destroyed():
		return p.forgetSteps(d, inst)
	}
	open, after := p.gate(d)
	if !open {
		return nil
	}
	s := d.step(ActionDelete, inst, "no longer declared")
	if released {
		s = d.step(ActionRelease, inst, "the instance is kept and no longer managed")
	}
	s.After = after
	return []Step{s}
}

func isReady(s *spec.MachineStatus) bool {
	return spec.ConditionOf(s.Conditions, ConditionReady).Status
}

func fields(changes []containerbroker.Change) string {
	var names []string
	for _, c := range changes {
		if c.Field != containerbroker.FieldRecord || len(changes) == 1 {
			names = append(names, c.Field)
		}
	}
	return strings.Join(names, ", ")
}

// wantEnded reports whether a new image, pool or network may have ended the
// cause of d's failure.
func (p *planner) wantEnded(d *Desired, kind fault.Kind) bool {
	return p.policy.Nudged[nudgeWant] && (kind == fault.NotFound || d.Status.Instance == nil && kind != fault.NeedsOperator) ||
		p.policy.Nudged[nudgeWant+d.Name] && kind == fault.NotFound
}

func (p *planner) nudged(d *Desired) bool {
	return p.policy.Nudged[d.Name] || p.policy.Nudged[nudgeAll]
}
