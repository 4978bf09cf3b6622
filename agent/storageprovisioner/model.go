// Package storageprovisioner makes volumes, filesystems and their attachments
// to machines match their declarations. The worker reads all records and, with
// one call per source, the host's storage. A pure function plans the steps, and
// the worker carries out the steps in bulk calls.
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
	// Record is the encoded record, of which the source stores a copy beside
	// the stamp.
	Record string
	// Source is the name of the source that provides the entity, e.g. loop.
	Source string
	// Retain is true if the data stays when the record is removed.
	Retain bool
	// Retries counts the user's requests for a new attempt. Force is true if the last
	// of them allows a detach while a process holds the entity.
	Retries int
	Force   bool
	// Size is the declared size in bytes. It is 0 for a filesystem on a volume.
	Size       int64
	Volume     spec.Volume     // set for a volume
	Filesystem spec.Filesystem // set for a filesystem
	// Bears is the uid in the stamp of the filesystem's volume. The
	// filesystem's stamp has the same uid, so that a filesystem that is
	// declared again is found on its volume.
	Bears string
	// Moved is not nil if the declaration names another source or volume than
	// the one with the filesystem's data. In this case the other fields
	// describe the place of the data. See PlaceAtData.
	Moved *plan.Change
}

func (e *Entity) id() state.ID { return state.ID{Kind: e.Kind, Name: e.Name} }

// key returns KIND/NAME.
func (e *Entity) key() string { return e.Kind + "/" + e.Name }

// requested reports whether the user requested a new attempt that was not made yet. The
// generation alone does not tell, because every change of the record raises it. It
// tells for the statuses of earlier versions, which do not count the attempts.
func (e *Entity) requested() bool {
	return e.Retries > e.Status.RetriesDone && e.Status.ObservedGeneration < e.Generation
}

// observed notes in a status that it describes the present record.
func (e *Entity) observed(s *spec.StorageStatus) {
	s.ObservedGeneration, s.RetriesDone = e.Generation, e.Retries
}

// ref returns the name and stamp by which a source knows the entity.
func (e *Entity) ref(namespace string) storage.Ref {
	uid := cmp.Or(e.Bears, e.Status.StampUID, e.UID)
	return storage.Ref{ID: e.Name, Stamp: storage.Stamp{Namespace: namespace, UID: uid}}
}

// Machine holds the fields of a machine that matter for storage.
type Machine struct {
	Name       string
	Type       spec.ContainerType
	Dying      bool
	Storage    []spec.Attachment
	Privileged bool
	Status     spec.MachineStatus
}

// needsMap reports whether the machine has views with translated owners.
func (m *Machine) needsMap() bool {
	return !m.Dying && !m.Privileged && slices.ContainsFunc(m.Storage, func(a spec.Attachment) bool { return a.Filesystem != "" })
}

// Desired holds the declared storage and all machines.
type Desired struct {
	Entities []Entity
	Machines []Machine
}

// Observed is an observation of the host.
type Observed struct {
	// Volumes and Filesystems are by the name of their source.
	Volumes     map[string][]storage.Volume
	Filesystems map[string][]storage.Filesystem
	// Mounts holds the mounts below the directories Policy.Mounts and
	// Policy.Views, by path.
	Mounts map[string]idmap.View
	// Blind holds the errors of sources that could not be listed. Plan plans no
	// steps for entities of these sources.
	Blind map[string]error
}

// Policy holds the other inputs of a plan.
type Policy struct {
	Namespace string
	// Leave is true if volumes and filesystems that are no longer declared are
	// released instead of deleted.
	Leave bool
	Now   time.Time
	// Withheld names the event for which destructive steps wait, or is empty;
	// see spec.Recovery.
	Withheld string
	// Nudged holds the entities (KIND/NAME) with a related event. Their pending
	// retries are due at once.
	Nudged map[string]bool
	// Mounts is the directory of the host's own mounts. Views is the directory
	// of the mounts that machines see.
	Mounts, Views string
	// Maps translate owners for unprivileged machines. It has the types with such
	// machines that declare a filesystem.
	Maps map[spec.ContainerType]GuestMap
}

// GuestMap is the map of a container type's guests. If there is none, Waiting is the
// event that brings it, or Missing is the reason.
type GuestMap struct {
	Map              idmap.Map
	Waiting, Missing string
}

// mountPath returns the path at which the host mounts a filesystem.
func (p Policy) mountPath(filesystem string) string { return filepath.Join(p.Mounts, filesystem) }

// viewPath returns the path of a machine's view of a filesystem.
func (p Policy) viewPath(machine, filesystem string) string {
	return filepath.Join(p.Views, machine, filesystem)
}

// Action names the effect of a step.
type Action string

// These are the actions.
const (
	ActionDestroy Action = "destroy" // delete the data, then the record
	ActionRelease Action = "release" // keep the data, remove the record
	ActionForget  Action = "forget"  // remove the record, as there is no data
	ActionAdopt   Action = "adopt"   // take over data of an earlier declaration
	ActionCreate  Action = "create"
	ActionGrow    Action = "grow"
	ActionDetach  Action = "detach" // from the host
	ActionAttach  Action = "attach" // to the host
	ActionHide    Action = "hide"   // take a machine's view away
	ActionShow    Action = "show"   // give a machine its view
	// ActionRemount is always held. Machines see copies of the host's mount
	// that have separate flags, and only a new mount changes the flags of all
	// copies. A volume's device gets another mode only while no machine has it.
	ActionRemount Action = "remount"
	// ActionPrepare is only shown in plans, to say that the creation of a
	// filesystem will install packages on the host.
	ActionPrepare Action = "prepare"
)

// Step is a planned change of an entity, or of its attachment to Machine.
type Step struct {
	Action  Action
	Kind    string
	Name    string
	Machine string
	Detail  string
	// Changes are for display. ActionAdopt also takes the stamp's uid from its
	// change.
	Changes []plan.Change
	// Keeps is true if the data stays on the volume when the filesystem is
	// destroyed.
	Keeps bool
	// Waiting names an unmet precondition. A step with one is only shown.
	Waiting string
	// Held says why the step needs the operator. A held step is only shown.
	Held string
	// After is the earliest time for the step. Zero means now.
	After time.Time
}

// Destroys reports whether the step removes storage or takes it from its users.
func (s *Step) Destroys() bool {
	switch s.Action {
	case ActionDestroy, ActionRelease, ActionForget, ActionDetach, ActionHide:
		return true
	}
	return false
}

// Wait makes the step wait for the event that why names, unless it already
// waits.
func (s *Step) Wait(why string) { s.Waiting = cmp.Or(s.Waiting, why) }

// due reports whether the step is to be carried out at the time now.
func (s Step) due(now time.Time) bool {
	return s.Waiting == "" && s.Held == "" && !s.After.After(now)
}

// phase returns the step's place in the order of a pass. The order is to
// remove, create, detach and attach volumes, then the same for filesystems.
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
