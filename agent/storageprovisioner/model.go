// Package storageprovisioner keeps volumes, filesystems and what machines are
// given of them as declared: it reads all records and, in one bulk call per
// source, all that is on the host, decides in a pure function what separates
// them, and carries that out in bulk.
package storageprovisioner

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
	"hostler/storage/idmap"
)

// Managed is the name of the source of filesystems on volumes.
const Managed = "managed"

// Entity is one volume's or filesystem's record, decoded.
type Entity struct {
	// Kind is spec.KindVolume or spec.KindFilesystem.
	Kind, Name, UID string
	Life            state.Life
	Generation      int64
	Status          spec.StorageStatus
	// Record is what a source keeps of the record, beside the stamp.
	Record string
	// Source names what provides it.
	Source string
	// Retain: the data survives the record.
	Retain bool
	// Force: it is detached although something holds it.
	Force bool
	// Size is the declared one in bytes; 0 for a filesystem on a volume.
	Size       int64
	Volume     spec.Volume     // of a volume
	Filesystem spec.Filesystem // of a filesystem
	// Bears is the uid in the stamp of the volume that a filesystem is on. The
	// filesystem bears the same: declared again, it is found on its volume.
	Bears string
	// Moved says that a filesystem is declared to be elsewhere; all else of the
	// entity is as it was made. See Settle.
	Moved *Change
}

// Key is KIND/NAME.
func (e *Entity) Key() string { return e.Kind + "/" + e.Name }

// ref is how a source knows the entity.
func (e *Entity) ref(namespace string) storage.Ref {
	uid := cmp.Or(e.Bears, e.Status.StampUID, e.UID)
	return storage.Ref{ID: e.Name, Stamp: storage.Stamp{Namespace: namespace, UID: uid}}
}

// Guest is what of a machine bears on storage.
type Guest struct {
	Name       string
	Dying      bool
	Storage    []spec.Attachment
	Privileged bool
	// Instance: one is recorded.
	Instance bool
	// Settled: its instance has no other storage than the record lists, or
	// there is none.
	Settled bool
	// Stopped: its instance does not run, or there is none.
	Stopped bool
}

// has returns the machine's attachment of an entity.
func (g *Guest) has(e *Entity) (spec.Attachment, bool) {
	at := slices.IndexFunc(g.Storage, func(a spec.Attachment) bool {
		return e.Kind == spec.KindVolume && a.Volume == e.Name || e.Kind == spec.KindFilesystem && a.Filesystem == e.Name
	})
	if at < 0 {
		return spec.Attachment{}, false
	}
	return g.Storage[at], true
}

// Desired is everything that is declared.
type Desired struct {
	Entities []Entity
	Guests   []Guest
}

// Observed is the host as one look saw it.
type Observed struct {
	// Volumes and Filesystems by the name of their source.
	Volumes     map[string][]storage.Volume
	Filesystems map[string][]storage.Filesystem
	// Mounts are those below the folders of mounts and views, by path.
	Mounts map[string]idmap.View
	// Blind says why a source could not be asked: nothing that needs it is
	// planned.
	Blind map[string]error
}

// Policy is what else a plan depends on; a value, so that Plan stays pure.
type Policy struct {
	Namespace string
	// Leave what is no longer declared as it is, as instances are left.
	Leave bool
	Now   time.Time
	// Unfound names what may have machines that no record tells of yet. Until
	// they are found nothing is taken away.
	Unfound string
	// Nudged entities (KIND/NAME) had an event that bears on them: a pending
	// retry is made at once. See nudgeAll.
	Nudged map[string]bool
	// Mounts is the folder of the host's own mounts, Views that of what
	// machines see.
	Mounts, Views string
	// Map is the owners' translation for unprivileged machines; NoMap says
	// why there is none.
	Map   idmap.Map
	NoMap string
}

// mountPath is where the host has a filesystem mounted (S32).
func (p Policy) mountPath(filesystem string) string { return filepath.Join(p.Mounts, filesystem) }

// viewPath is where a machine's view of a filesystem is.
func (p Policy) viewPath(machine, filesystem string) string {
	return filepath.Join(p.Views, machine, filesystem)
}

// Action is what a step does.
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
	// ActionRemount is always held: what machines see are copies of the host's
	// mount with flags of their own, which only a new mount changes all.
	ActionRemount Action = "remount"
	// ActionPrepare is only told: making the filesystem prepares the host.
	ActionPrepare Action = "prepare"
)

// Step is one thing to do for one entity, or for its attachment to Machine.
type Step struct {
	Action  Action
	Kind    string
	Name    string
	Machine string
	Detail  string
	// Changes are shown; only grow has one.
	Changes []Change
	// Keeps: a destroy after which what was in it is still on its volume.
	Keeps bool
	// Waiting says what must come first; such a step is only shown.
	Waiting string
	// Held says why it is not done without a person; such a step is only shown.
	Held string
	// After is when the step may be carried out; zero: now.
	After time.Time
}

// takes says whether the step takes something away from whoever uses it.
func (s Step) takes() bool {
	switch s.Action {
	case ActionDestroy, ActionRelease, ActionForget, ActionDetach, ActionHide:
		return true
	}
	return false
}

// Change is one field that separates what is there from what is declared.
type Change struct{ Field, From, To string }

// Due says whether the step may be carried out at now.
func (s Step) Due(now time.Time) bool {
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
