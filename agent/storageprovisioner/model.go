// Package storageprovisioner keeps volumes, filesystems and their attachments
// to machines as declared. It reads all records and, with one bulk call per
// source, the host's storage; a pure function plans the steps between the two;
// the worker carries them out in bulk.
package storageprovisioner

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/plan"
	"hostler/storage"
	"hostler/storage/idmap"
)

// Managed is the name of the source of filesystems on volumes.
const Managed = "managed"

// Entity is the decoded record of a volume or filesystem.
type Entity struct {
	// Kind is spec.KindVolume or spec.KindFilesystem.
	Kind, Name, UID string
	Life            state.Life
	Generation      int64
	Status          spec.StorageStatus
	// Record is the copy of the record that the source stores beside the stamp.
	Record string
	// Source is the name of the providing source, e.g. loop.
	Source string
	// Retain: the data stays when the record is removed.
	Retain bool
	// Force: detach even while a process holds the entity.
	Force bool
	// Size is the declared size in bytes; 0 for a filesystem on a volume.
	Size       int64
	Volume     spec.Volume     // of a volume
	Filesystem spec.Filesystem // of a filesystem
	// Bears is the uid in the stamp of the filesystem's volume. The filesystem
	// has the same uid in its stamp: declared again, it is found on its volume.
	Bears string
	// Moved is set if the declaration puts the filesystem on another source or
	// volume than its data is on. The entity's other fields then describe the
	// place of the data. See PlaceAtData.
	Moved *plan.Change
}

func (e *Entity) id() state.ID { return state.ID{Kind: e.Kind, Name: e.Name} }

// key is KIND/NAME.
func (e *Entity) key() string { return e.Kind + "/" + e.Name }

// ref is the name and stamp under which a source knows the entity.
func (e *Entity) ref(namespace string) storage.Ref {
	uid := cmp.Or(e.Bears, e.Status.StampUID, e.UID)
	return storage.Ref{ID: e.Name, Stamp: storage.Stamp{Namespace: namespace, UID: uid}}
}

// Machine holds the fields of a machine that matter for storage.
type Machine struct {
	Name       string
	Dying      bool
	Storage    []spec.Attachment
	Privileged bool
	Status     spec.MachineStatus
}

// has returns the machine's attachment of an entity.
func (g *Machine) has(e *Entity) (spec.Attachment, bool) {
	at := slices.IndexFunc(g.Storage, func(a spec.Attachment) bool { return a.Object() == e.key() })
	if at < 0 {
		return spec.Attachment{}, false
	}
	return g.Storage[at], true
}

// Desired is the declared storage and its machines.
type Desired struct {
	Entities []Entity
	Machines []Machine
}

// Observed is an observation of the host.
type Observed struct {
	// Volumes and Filesystems are keyed by the name of their source.
	Volumes     map[string][]storage.Volume
	Filesystems map[string][]storage.Filesystem
	// Mounts are the mounts below the directories Policy.Mounts and
	// Policy.Views, by path.
	Mounts map[string]idmap.View
	// Blind holds the errors of sources that could not be listed. No step is
	// planned for their entities.
	Blind map[string]error
}

// Policy holds the other inputs of a plan. It is a value, so that Plan stays
// pure.
type Policy struct {
	Namespace string
	// Leave: release volumes and filesystems that are no longer declared;
	// delete nothing.
	Leave bool
	Now   time.Time
	// Unfound names a container type that may run machines without a record,
	// e.g. after the loss of the store. Until recovery has found those
	// machines, no storage is detached or removed.
	Unfound string
	// Nudged are the entities (KIND/NAME) with a related event: their pending
	// retries are made at once.
	Nudged map[string]bool
	// Mounts is the directory of the host's own mounts, Views that of the
	// mounts that machines see.
	Mounts, Views string
	// Map translates owners for unprivileged machines; NoMap says why there is
	// no map.
	Map   idmap.Map
	NoMap string
}

// mountPath is where the host has a filesystem mounted (S32).
func (p Policy) mountPath(filesystem string) string { return filepath.Join(p.Mounts, filesystem) }

// viewPath is where a machine's view of a filesystem is.
func (p Policy) viewPath(machine, filesystem string) string {
	return filepath.Join(p.Views, machine, filesystem)
}

// Action names the effect of a step.
type Action string

// The actions.
const (
	ActionDestroy Action = "destroy" // delete the data, then the record
	ActionRelease Action = "release" // keep the data, remove the record
	ActionForget  Action = "forget"  // remove the record: there is no data
	ActionAdopt   Action = "adopt"   // take over data of an earlier declaration
	ActionCreate  Action = "create"
	ActionGrow    Action = "grow"
	ActionDetach  Action = "detach" // from the host
	ActionAttach  Action = "attach" // to the host
	ActionHide    Action = "hide"   // take a machine's view away
	ActionShow    Action = "show"   // give a machine its view
	// ActionRemount is always held: machines see copies of the host's mount
	// with their own flags, and only a new mount changes the flags of all
	// copies.
	ActionRemount Action = "remount"
	// ActionPrepare is only shown, never carried out as a step: creating the
	// filesystem installs packages on the host.
	ActionPrepare Action = "prepare"
)

// Step is a planned change of an entity, or of its attachment to Machine.
type Step struct {
	Action  Action
	Kind    string
	Name    string
	Machine string
	Detail  string
	// Changes are for display. That of ActionAdopt also carries the new stamp's
	// uid.
	Changes []plan.Change
	// Keeps: the data stays on the volume when the filesystem is destroyed.
	Keeps bool
	// Waiting names an unmet precondition; the step is only shown.
	Waiting string
	// Held says why the step needs the operator; the step is only shown.
	Held string
	// After is the earliest time of the step; zero: now.
	After time.Time
}

// takes reports whether the step removes storage or takes it from its users.
func (s Step) takes() bool {
	switch s.Action {
	case ActionDestroy, ActionRelease, ActionForget, ActionDetach, ActionHide:
		return true
	}
	return false
}

// due reports whether the step may be carried out at now.
func (s Step) due(now time.Time) bool {
	return s.Waiting == "" && s.Held == "" && !s.After.After(now)
}

// phase is the step's place in a batch (S20): remove volumes, create volumes,
// detach volumes, attach volumes, then the same for filesystems.
func (s Step) phase() int {
	phase := 0
	switch s.Action {
	case ActionCreate, ActionAdopt, ActionGrow:
		phase = 1
	case ActionHide:
		phase = 2
	case ActionDetach:
		phase = 3
	case ActionAttach:
		phase = 4
	case ActionShow:
		phase = 5
	}
	if s.Kind == spec.KindFilesystem {
		phase += 6
	}
	return phase
}
