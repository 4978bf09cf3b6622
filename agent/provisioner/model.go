// Package provisioner keeps the machines of one container type as declared. It
// reads all records and, in one bulk call, all instances, plans the steps in a
// pure function, and carries them out through a broker.
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

// The harvest modes. HarvestDestroyed deletes the instances of machines that
// were removed from their declaration. HarvestUnknown deletes orphans.
// HarvestAll does both.
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
	// Machine is the record resolved for the driver. Its stamp has no token, since
	// every create attempt gets a new token.
	Machine containerbroker.Machine
	// Waiting names the networks and the storage that are not ready yet.
	Waiting []string
	// NotAutostarted is set by MarkNotAutostarted.
	NotAutostarted bool
	// Booted is set by markBooted.
	Booted bool
}

func (d Desired) id() state.ID { return state.ID{Kind: spec.KindMachine, Name: d.Name} }

// wantsRunning returns the wanted power state: the last one set by hand (e.g.
// with `hostler stop`), or else the declared one.
func (d Desired) wantsRunning() bool {
	if d.NotAutostarted {
		return false
	}
	if o := d.Record.PowerOverride; o != nil {
		return *o
	}
	return d.Record.Machine.WantsRunning()
}

// instanceName returns the name of the machine's instance. The instance keeps
// its name when the machine is renamed.
func (d Desired) instanceName() string { return cmp.Or(d.Record.InstanceName, d.Name) }

// released says whether the instance outlives the record.
func (d Desired) released() bool { return d.Record.Released || d.Record.Machine.Retain }

// allows says whether the user allowed changes of that impact. Permission for a
// recreate ends with that recreate. Otherwise a change of the host's
// configuration, e.g. another administrator's key, could cause a second
// recreate without the user.
func (d Desired) allows(i containerbroker.Impact) bool {
	if i == containerbroker.ImpactNone || i == containerbroker.ImpactLive {
		return true
	}
	if i == containerbroker.ImpactRecreate && d.Status.ConsentUsed >= d.Generation {
		return false
	}
	for _, a := range d.Record.Allow {
		if a == string(i) || a == string(containerbroker.ImpactRecreate) && i == containerbroker.ImpactRestart {
			return true
		}
	}
	return false
}

// Observed is the state of the hypervisor and the journal as read by one pass.
type Observed struct {
	// Complete is false if any part could not be read. Plan then returns no steps.
	Complete  bool
	Instances []containerbroker.Instance
	Intents   []state.Intent
}

// Policy holds the further inputs of a plan. It is a value, so that Plan stays
// pure.
type Policy struct {
	Namespace string
	Lineage   spec.Lineage
	Harvest   Harvest
	Now       time.Time
	// LongestDelay is the longest possible delay before a retry. A retry that lies
	// further in the future is due at once, e.g. after a jump of the clock.
	LongestDelay time.Duration
	// Busy machines and instances have a running operation. Plan skips them.
	Busy map[string]bool
	// Nudged machines had an event that concerns them, so a pending retry is due
	// at once.
	Nudged map[string]bool
	// AssumeReady plans as if all networks and storage that machines wait for were
	// ready. It serves to show the effect of a declaration, not to carry it out.
	AssumeReady bool
	Diff        func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change
}

func (p Policy) owner() Owner { return Owner{p.Namespace, p.Lineage} }

// Action is the kind of a step.
type Action string

// The actions. A pass carries out all removals before it creates anything.
const (
	ActionDelete   Action = "delete"   // delete the instance, then the record
	ActionHarvest  Action = "harvest"  // delete an instance without a record
	ActionRelease  Action = "release"  // let the instance go, remove the record
	ActionForget   Action = "forget"   // take volumes back, remove the record only
	ActionStop     Action = "stop"     // stop the instance
	ActionRecord   Action = "record"   // record an instance found by its stamp
	ActionUpdate   Action = "update"   // change the instance as it runs
	ActionRecreate Action = "recreate" // delete and create
	ActionCreate   Action = "create"   // create, start, wait until ready
	ActionStart    Action = "start"    // start, wait until ready
	ActionRestart  Action = "restart"  // change, restart, wait until ready
	ActionReady    Action = "ready"    // wait until ready
	ActionConflict Action = "conflict" // another instance has the machine's name, or a restart does not make a change
)

// actions is the table of the actions: the impact on a machine, unless the step
// has another; whether the step belongs before all creates; whether it only
// records or awaits a change that has already happened.
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

// Known says whether the action exists.
func (a Action) Known() bool { _, known := actions[a]; return known }

// Step is a planned change to a machine or an orphan.
type Step struct {
	Action Action
	// Machine names the record, or the instance for ActionHarvest.
	Machine  string
	UID      string
	Impact   containerbroker.Impact
	Changes  []containerbroker.Change
	Detail   string
	Instance *containerbroker.Instance
	// Held is the option or the edit that the user must supply first, e.g.
	// "--allow restart". A held step is only shown.
	Held string
	// Allow is the impact whose consent releases the held step, "" if none does.
	Allow containerbroker.Impact
	// DespiteFailure marks a step that is made although the machine's last failure waits for
	// the operator. Its success does not clear that failure.
	DespiteFailure bool
	// After is the earliest time for the step; zero: now.
	After time.Time
}

// step returns a step of the machine, with the impact of its action.
func (d Desired) step(a Action, inst *containerbroker.Instance, detail string) Step {
	return Step{Action: a, Machine: d.Name, UID: d.UID, Impact: actions[a].impact, Instance: inst, Detail: detail}
}

// conflict returns a step that waits for the operator.
func (d Desired) conflict(inst *containerbroker.Instance, held string) Step {
	s := d.step(ActionConflict, inst, "")
	s.Held = held
	return s
}

// change returns a step that makes changes.
func (d Desired) change(a Action, inst *containerbroker.Instance, changes []containerbroker.Change, detail string) Step {
	s := d.step(a, inst, detail+fields(changes))
	s.Changes = changes
	return s
}

// removes says whether the step belongs before all creates.
func (s Step) removes() bool { return actions[s.Action].removes }

// Visible says whether the step changes something that the user would notice.
func (s Step) Visible() bool {
	return !actions[s.Action].silent && (s.Action != ActionForget || len(s.Changes) > 0)
}
