package declare

import (
	"bytes"
	"encoding/json"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// object is a machine, network, volume or filesystem with a record.
type object struct {
	state.ID
	kind
	before *state.Object // nil if new
	// was is the record as read from the store, nil for a new object.
	was, now record
	life     state.Life
	uid      string // the uid that a new object gets, or "" if the store chooses one
	// renamed is the stored object of the machine's former name, if the machine is
	// renamed.
	renamed *state.Object
	decoded *machineStatus // of before, once it was asked for
}

// machineStatus is the result of the method of this name.
type machineStatus struct {
	status spec.MachineStatus
	known  bool
}

// newObject returns an object without a record in the store.
func newObject(id state.ID) *object {
	k := kinds[id.Kind]
	return &object{ID: id, kind: k, now: k.empty(), life: state.Alive}
}

// readObject decodes an object of the store.
func readObject(stored state.Object) (*object, error) {
	o := newObject(stored.ID)
	o.before, o.life = &stored, stored.Life
	if err := stored.Decode(o.now, nil); err != nil {
		return nil, err
	}
	o.was = o.copy(o.now)
	return o, nil
}

func (o *object) head() *spec.Header { return o.now.Head() }

// machine returns the record of a machine, nil for another kind.
func (o *object) machine() *spec.MachineRecord {
	m, _ := o.now.(*spec.MachineRecord)
	return m
}

// changed reports whether the record differs from the record in the store.
func (o *object) changed() bool { return o.was == nil || !same(o.was, o.now) }

// writes returns the writes that store the object. They compare the uid and not
// the revision, because every status write changes the revision. That is
// enough, because only the holder of the declaring lock writes specs.
func (o *object) writes() []state.Write {
	w := state.Write{ID: o.ID}
	if o.before == nil {
		w.Spec, w.UID = spec.Encode(o.now), o.uid
		if o.renamed == nil {
			return []state.Write{w}
		}
		w.Status = statusAfterRename(o.renamed.Status)
		return []state.Write{{ID: o.renamed.ID, Revision: o.renamed.Revision, UID: o.renamed.UID, Delete: true}, w}
	}
	w.Revision, w.UID = state.AnyRevision, o.before.UID
	if o.changed() {
		w.Spec = spec.Encode(o.now)
	}
	if o.life != o.before.Life {
		w.Life = o.life
	}
	if w.Spec == nil && w.Life == "" {
		return nil
	}
	return []state.Write{w}
}

// planned returns the object for the planner.
func (o *object) planned() Planned {
	p := Planned{Before: o.before, After: state.Object{ID: o.ID, Generation: 1, UID: o.uid}}
	change := o.now
	switch {
	case o.before != nil:
		p.After = *o.before
		if o.life == state.Alive { // a hold does not affect the host
			change = o.copy(o.now)
			change.Head().Held = o.was.Head().Held
		}
	case o.renamed != nil:
		p.After.Status = statusAfterRename(o.renamed.Status)
	}
	p.After.Life = o.life
	differs := o.was == nil || !same(o.was, change)
	if differs {
		p.After.Spec = spec.Encode(change)
	}
	if o.before != nil && (differs || o.life != o.before.Life) {
		p.After.Generation++
	}
	return p
}

// machineStatus returns the status of a machine; known is false if it has none
// or cannot be read.
func (o *object) machineStatus() (status spec.MachineStatus, known bool) {
	if o.decoded == nil {
		d := machineStatus{}
		d.known = o.before != nil && json.Unmarshal(o.before.Status, &d.status) == nil
		o.decoded = &d
	}
	return o.decoded.status, o.decoded.known
}

// notAutostarted reports whether a machine without autostart waits for the user
// to start it.
func (o *object) notAutostarted() bool {
	status, known := o.machineStatus()
	return known && status.NotAutostarted()
}

// frozen reports whether a machine that should run has a suspended instance.
func (o *object) frozen() bool {
	status, known := o.machineStatus()
	was, _ := o.was.(*spec.MachineRecord)
	return known && was != nil && wantsRunning(was) && status.State == spec.MachineStopped && !status.NotAutostarted()
}

// isPending reports whether the provisioner has yet to carry out the last
// declaration of a machine. A step that needs consent may then still come up.
func (o *object) isPending() bool {
	status, known := o.machineStatus()
	return o.machine() != nil && (!known || status.ObservedGeneration != o.before.Generation ||
		status.State == spec.MachinePending || status.State == spec.MachineProvisioning)
}

// allowsRestart reports whether a machine has a consent to a restart that was not
// used.
func (o *object) allowsRestart() bool {
	status, _ := o.machineStatus()
	return o.machine().AllowsRestart(&status)
}

// lacksInstance reports whether a machine has no instance because its creation
// failed, for a reason that needs no operator.
func (o *object) lacksInstance() bool {
	status, known := o.machineStatus()
	kind := fault.Kind(status.Attempts.ErrorKind)
	return known && o.life == state.Alive && status.Instance == nil && kind != "" && kind != fault.NeedsOperator
}

// hasNoData reports whether an object never had data of its own, so that its
// removal loses nothing. making says whether its instance or data may be in
// creation.
func (o *object) hasNoData(making bool) bool {
	if o.before == nil {
		return true
	}
	switch r := o.now.(type) {
	case *spec.MachineRecord:
		status, known := o.machineStatus()
		seen := len(o.before.Status) > 0 && (!known || status.Instance != nil)
		return !seen && !r.Adopted && !making
	case *spec.VolumeRecord:
		status, known := o.storageStatus()
		return known && !status.Created && !r.Restored && !making
	case *spec.FilesystemRecord:
		status, known := o.storageStatus()
		return known && (r.Filesystem.Provider == "tmpfs" || !status.Created && !r.Restored && !making)
	}
	return true
}

// storageStatus returns the status of a volume or filesystem; known is false if
// it cannot be read.
func (o *object) storageStatus() (status spec.StorageStatus, known bool) {
	known = o.before != nil && (len(o.before.Status) == 0 || json.Unmarshal(o.before.Status, &status) == nil)
	return status, known
}

// wantsRunning reports whether a machine should run, by request or declaration.
func wantsRunning(r *spec.MachineRecord) bool {
	if r.PowerOverride != nil {
		return *r.PowerOverride
	}
	return r.Machine.WantsRunning()
}

// same compares two values by their encoded text.
func same(a, b any) bool { return bytes.Equal(spec.Encode(a), spec.Encode(b)) }
