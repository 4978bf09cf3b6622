// Package provisioner keeps the machines of one container type as declared:
// it reads all records and, in one bulk call, all instances, decides in a pure
// function what separates them, and carries that out through a broker.
package provisioner

import (
	"cmp"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// Harvest is the policy for instances that nothing declares any more.
type Harvest string

// The harvest modes. Destroyed: instances whose declaration was removed are
// deleted. Unknown: stamped instances without a record are deleted. All: both.
const (
	HarvestNone      Harvest = "none"
	HarvestUnknown   Harvest = "unknown"
	HarvestDestroyed Harvest = "destroyed"
	HarvestAll       Harvest = "all"
)

func (h Harvest) destroyed() bool { return h == HarvestDestroyed || h == HarvestAll }
func (h Harvest) unknown() bool   { return h == HarvestUnknown || h == HarvestAll }

// Desired is one machine's record, decoded.
type Desired struct {
	Name       string
	UID        string
	Revision   int64
	Life       state.Life
	Generation int64
	Record     spec.MachineRecord
	Status     spec.MachineStatus
	// Machine is the record resolved for the driver. Its stamp bears no token:
	// every attempt gets one of its own.
	Machine containerbroker.Machine
	// Waiting names the networks and the storage that are not there yet.
	Waiting []string
	// Resting: see Rest.
	Resting bool
	// Booted: see Booted.
	Booted bool
}

// wantsRunning is the wanted power state: what a person last asked for by
// hand, else what is declared.
func (d Desired) wantsRunning() bool {
	if d.Resting {
		return false
	}
	if o := d.Record.PowerOverride; o != nil {
		return *o
	}
	return d.Record.Machine.WantsRunning()
}

// released says that the instance outlives the record.
// instanceName is the name of the machine's instance: a machine that was renamed
// keeps its instance as it is.
func (d Desired) instanceName() string { return cmp.Or(d.Record.InstanceName, d.Name) }

func (d Desired) released() bool { return d.Record.Released || d.Record.Machine.Retain }

// allows says whether the user allowed changes of that impact. Consent to a
// recreate ends with the recreate: the host's configuration, e.g. a key of
// another administrator, may ask for the next one without any user's word.
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

// Observed is the world as one pass saw it.
type Observed struct {
	// Complete is false when any part could not be read; nothing destructive
	// is planned then.
	Complete  bool
	Instances []containerbroker.Instance
	Intents   []state.Intent
}

// Policy is what else a plan depends on; a value, so that Plan stays pure.
type Policy struct {
	Namespace string
	Lineage   spec.Lineage
	Harvest   Harvest
	Now       time.Time
	// LongestDelay is the longest there can be before a retry; one that was put
	// off for longer is due.
	LongestDelay time.Duration
	// Busy machines (and instances) have an operation under way: they are
	// left alone until it has ended.
	Busy map[string]bool
	// Nudged machines had an event that bears on them: a pending retry is
	// made at once.
	Nudged map[string]bool
	// Foresee plans as if what machines wait for were there: for showing what a
	// declaration would do, not for doing it.
	Foresee bool
	Diff    func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change
}

func (p Policy) owner() Owner { return Owner{p.Namespace, p.Lineage} }

// Action is what a step does.
type Action string

// The actions, in the order in which a pass carries them out: everything that
// removes comes before everything that makes.
const (
	ActionDelete   Action = "delete"   // delete the instance, then the record
	ActionHarvest  Action = "harvest"  // delete an instance without a record
	ActionRelease  Action = "release"  // let the instance go, remove the record
	ActionForget   Action = "forget"   // take volumes back, remove the record only
	ActionStop     Action = "stop"     // stop the instance
	ActionRecord   Action = "record"   // write down an instance found by its stamp
	ActionUpdate   Action = "update"   // change the instance as it runs
	ActionRecreate Action = "recreate" // delete and create
	ActionCreate   Action = "create"   // create, start, wait until ready
	ActionStart    Action = "start"    // start, wait until ready
	ActionRestart  Action = "restart"  // change, restart, wait until ready
	ActionReady    Action = "ready"    // wait until ready
	ActionConflict Action = "conflict" // somebody else's instance is in the way
)

// Known says whether there is such an action.
func (a Action) Known() bool {
	switch a {
	case ActionDelete, ActionHarvest, ActionRelease, ActionForget, ActionStop, ActionRecord, ActionUpdate,
		ActionRecreate, ActionCreate, ActionStart, ActionRestart, ActionReady, ActionConflict:
		return true
	}
	return false
}

// Step is one thing to do, for one machine or one unknown instance.
type Step struct {
	Action Action
	// Machine names the record, or the instance for ActionHarvest.
	Machine  string
	UID      string
	Impact   containerbroker.Impact
	Changes  []containerbroker.Change
	Detail   string
	Instance *containerbroker.Instance
	// Held says what a person must allow first; a held step is only shown.
	Held string
	// Kept: the step is made in spite of a failure that waits for the operator,
	// which it does not end.
	Kept bool
	// After is when the step may be carried out; zero: now.
	After time.Time
}

// Destructive steps take something away from the hypervisor.
func (s Step) Destructive() bool {
	return s.Held == "" && (s.Action == ActionDelete || s.Action == ActionHarvest || s.Action == ActionRecreate)
}

// removes says that the step belongs before everything that makes.
func (s Step) removes() bool {
	switch s.Action {
	case ActionDelete, ActionHarvest, ActionRelease, ActionForget, ActionStop:
		return true
	}
	return false
}

// Visible says that the step changes something a person would name; the
// others only catch up with what is already there.
func (s Step) Visible() bool {
	switch s.Action {
	case ActionForget:
		return len(s.Changes) > 0
	case ActionRecord, ActionReady:
		return false
	}
	return true
}
