// Package provisioner makes the instances of one container type match the
// declared machines. It reads all records and, in one call, all instances. It
// plans the steps in a pure function and carries out the steps through a
// broker.
package provisioner

import (
	"cmp"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// Harvest is the policy for instances that are no longer declared.
type Harvest string

// These are the harvest modes. HarvestDestroyed deletes the instances of
// machines that were removed from their declaration. HarvestUnknown deletes
// orphans. HarvestAll does both.
const (
	HarvestNone      Harvest = "none"
	HarvestUnknown   Harvest = "unknown"
	HarvestDestroyed Harvest = "destroyed"
	HarvestAll       Harvest = "all"
)

func (h Harvest) destroyed() bool { return h == HarvestDestroyed || h == HarvestAll }
func (h Harvest) unknown() bool   { return h == HarvestUnknown || h == HarvestAll }

// Desired is a machine's decoded record.
type Desired struct {
	Name       string
	UID        string
	Revision   int64
	Life       state.Life
	Generation int64
	Record     spec.MachineRecord
	Status     spec.MachineStatus
	// Machine is the record in the driver's form; see Config.Resolve. Its stamp
	// has no token, since every create attempt gets a new token.
	Machine containerbroker.Machine
	// Waiting names the networks and the storage that are not ready yet.
	Waiting []string
	// HeldBack is true if all of Waiting is storage whose change is held. It ends only
	// when the user acts.
	HeldBack bool
	// Unsettled is true if one of the networks is still changing, or is still to give
	// the machine its declared address.
	Unsettled bool
	// NotAutostarted is true if MarkNotAutostarted() marked the machine.
	NotAutostarted bool
	// Booted is true if markBooted() marked the machine.
	Booted bool
	// Amended is true if Status is not the stored one, e.g. if an earlier version
	// wrote that.
	Amended bool
}

func (d *Desired) id() state.ID { return state.ID{Kind: spec.KindMachine, Name: d.Name} }

// wantsRunning reports whether the instance should run. A power state that the
// user set by hand (e.g. with `hostler stop`) overrides the declared one.
func (d *Desired) wantsRunning() bool {
	if d.NotAutostarted {
		return false
	}
	if o := d.Record.PowerOverride; o != nil {
		return *o
	}
	return d.Record.Machine.WantsRunning()
}

// migrates reports whether the machine is left alone because its instance is
// being moved to another container type. The removal of such a machine waits.
func (d *Desired) migrates() bool {
	m := d.Record.Migration
	return m.Moving() || m.Moved() && d.Life != state.Alive
}

// instanceName returns the name of the machine's instance. The instance keeps
// its name when the machine is renamed.
func (d *Desired) instanceName() string { return cmp.Or(d.Record.InstanceName, d.Name) }

// released reports whether the instance stays on the host after the removal of
// its record.
func (d *Desired) released() bool { return d.Record.Released || d.Record.Machine.Retain }

// allows reports whether the user permitted changes of this impact. Permission
// ends with the restart or recreate. Otherwise a later change of the host, e.g. a
// new administrator's key or another DNS server, could cause one that the user did
// not permit.
func (d *Desired) allows(i containerbroker.Impact) bool {
	switch i {
	case containerbroker.ImpactNone, containerbroker.ImpactLive:
		return true
	case containerbroker.ImpactRestart:
		return d.Record.AllowsRestart(&d.Status)
	case containerbroker.ImpactRecreate:
		return d.Record.AllowsRecreate(&d.Status)
	}
	return false
}

// Observed is the state of the hypervisor and the journal as read by one pass.
type Observed struct {
	// Complete is false if any part could not be read. In this case Plan returns
	// no steps.
	Complete  bool
	Instances []containerbroker.Instance
	Intents   []state.Intent
}

// Policy holds the other inputs of a plan.
type Policy struct {
	// Type is the container type of the instances. Plan deletes no orphan that was
	// made for a machine of another type.
	Type      spec.ContainerType
	Namespace string
	Lineage   spec.Lineage
	// Withheld names the event for which destructive steps wait, or is empty;
	// see spec.Recovery.
	Withheld string
	Harvest  Harvest
	Now      time.Time
	// LongestDelay is the longest possible delay before a retry. A retry that lies
	// further in the future is due at once, e.g. after a jump of the clock.
	LongestDelay time.Duration
	// Busy holds the names of machines and instances with a running operation.
	// Plan skips them.
	Busy map[string]bool
	// Nudged holds the names of machines with a new event. Their pending retries
	// are due at once. See also nudgeAll and nudgeWant.
	Nudged map[string]bool
	// AssumeReady makes Plan treat all networks and storage that machines wait for
	// as ready. It is for plans that are only shown.
	AssumeReady bool
	Diff        func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change
}

func (p Policy) owner() Owner { return Owner{p.Namespace, p.Lineage} }

// Action is the kind of a step.
type Action string

// These are the actions. A pass carries out all removals before it creates
// anything.
const (
	ActionDelete   Action = "delete"   // delete the instance, then the record
	ActionHarvest  Action = "harvest"  // delete an instance without a record
	ActionRelease  Action = "release"  // remove the stamp and the record, keep the instance
	ActionForget   Action = "forget"   // detach volumes, remove the record, keep the instance
	ActionStop     Action = "stop"     // stop the instance
	ActionRecord   Action = "record"   // record an instance found by its stamp
	ActionUpdate   Action = "update"   // change the instance without a restart
	ActionRecreate Action = "recreate" // delete and create
	ActionCreate   Action = "create"   // create, start, wait until ready
	ActionStart    Action = "start"    // start, wait until ready
	ActionRestart  Action = "restart"  // change, restart, wait until ready
	ActionReady    Action = "ready"    // wait until ready
	ActionConflict Action = "conflict" // another instance has the machine's name, or a restart does not make a change
)

// actions describes the actions. impact is the default impact on a machine.
// removes is true for steps that remove something; a pass carries these out
// before all creates. silent is true for steps that only record or await a
// change that has already happened.
var actions = map[Action]struct {
	impact          containerbroker.Impact
	removes, silent bool
}{
	ActionDelete:   {impact: containerbroker.ImpactDestroy, removes: true},
	ActionHarvest:  {impact: containerbroker.ImpactDestroy, removes: true},
	ActionRelease:  {impact: containerbroker.ImpactNone, removes: true},
	ActionForget:   {impact: containerbroker.ImpactNone, removes: true},
	ActionStop:     {impact: containerbroker.ImpactRestart, removes: true},
	ActionRecord:   {impact: containerbroker.ImpactNone, silent: true},
	ActionUpdate:   {impact: containerbroker.ImpactLive},
	ActionRecreate: {impact: containerbroker.ImpactRecreate},
	ActionCreate:   {impact: containerbroker.ImpactNone},
	ActionStart:    {impact: containerbroker.ImpactNone},
	ActionRestart:  {impact: containerbroker.ImpactRestart},
	ActionReady:    {impact: containerbroker.ImpactNone, silent: true},
	ActionConflict: {impact: containerbroker.ImpactNone},
}

// Known reports whether the action exists.
func (a Action) Known() bool { _, known := actions[a]; return known }

// Step is a planned change to a machine or an orphan.
type Step struct {
	Action Action
	// Machine is the machine's name. For ActionHarvest it is the instance's
	// name.
	Machine  string
	UID      string
	Impact   containerbroker.Impact
	Changes  []containerbroker.Change
	Detail   string
	Instance *containerbroker.Instance
	// Held names the option or the edit without which the step is not carried
	// out, e.g. "--allow restart". A held step is only shown.
	Held string
	// Waiting names the event for which the step waits, if the user need not act.
	// A waiting step is only shown.
	Waiting string
	// Allow is the impact that the user must permit for the held step, or "" if
	// no permission suffices.
	Allow containerbroker.Impact
	// DespiteFailure marks a step that is carried out although the machine's last
	// failure waits for the operator. The step's success does not clear this
	// failure.
	DespiteFailure bool
	// After is the earliest time for the step. Zero means now.
	After time.Time
}

// step returns a step of the machine with the default impact of action a.
func (d *Desired) step(a Action, inst *containerbroker.Instance, detail string) Step {
	return Step{Action: a, Machine: d.Name, UID: d.UID, Impact: actions[a].impact, Instance: inst, Detail: detail}
}

// conflict returns a step that waits for the operator.
func (d *Desired) conflict(inst *containerbroker.Instance, held string) Step {
	s := d.step(ActionConflict, inst, "")
	s.Held = held
	return s
}

// change returns a step of action a that makes the changes.
func (d *Desired) change(a Action, inst *containerbroker.Instance, changes []containerbroker.Change, detail string) Step {
	s := d.step(a, inst, detail+fields(changes))
	s.Changes = changes
	return s
}

// removes reports whether the step removes something. A pass carries out such
// steps before all creates.
func (s *Step) removes() bool { return actions[s.Action].removes }

// Destroys reports whether the step deletes an instance.
func (s *Step) Destroys() bool {
	return s.Impact == containerbroker.ImpactDestroy || s.Impact == containerbroker.ImpactRecreate
}

// Wait makes the step wait for the event that why names.
func (s *Step) Wait(why string) { s.Waiting = why }

// Visible reports whether plans show the step, because the user would notice
// its effect. They do not show a harvest that waits for the recovery, because
// the instance probably gets its record back.
func (s Step) Visible() bool {
	return !actions[s.Action].silent && (s.Action != ActionForget || len(s.Changes) > 0) && (s.Action != ActionHarvest || s.Waiting == "")
}
