package api

import (
	"cmp"
	"encoding/json"
	"slices"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// machineRow converts a machine object to its row.
func machineRow(o state.Object) (client.Machine, error) {
	var rec spec.MachineRecord
	var st spec.MachineStatus
	if err := o.Decode(&rec, &st); err != nil {
		return client.Machine{}, err
	}
	row := client.Machine{
		Name: o.Name, Type: rec.Machine.Type, Life: string(o.Life), Status: machineStatus(o.Life, st.State), Message: st.Message,
		Image: rec.Machine.Image, Addresses: orEmpty(st.Addresses), Attempts: st.Attempts.Count, NextRetry: st.Attempts.NextRetry,
		Declaration: rec.Declaration, UID: o.UID, Generation: o.Generation, Observed: st.ObservedGeneration == o.Generation,
		Percent: st.Percent, Took: st.Took, Hardware: st.Hardware, Conditions: orEmpty(st.Conditions), Migration: rec.Migration,
	}
	if p := rec.PowerOverride; p != nil && !*p && row.Status == spec.MachineStopped && row.Message == "" {
		row.Message = "stopped by hand"
	}
	if m := rec.Migration; m != nil && m.Phase == spec.MigrationFailed && row.Message == "" {
		row.Message = "not migrated to " + string(m.To) + ": " + m.Error
	}
	if rec.Held != "" && o.Life == state.Alive {
		row.Conditions = spec.SetCondition(slices.Clone(row.Conditions), spec.Condition{
			Type: "Declared", Reason: "Held", Message: heldMessage + " machine/" + o.Name + "`", Since: o.Updated,
		})
		heldRow(o, rec.Held, &row.Message)
	}
	if st.Instance != nil {
		row.Instance = st.Instance.Name
		row.Image = cmp.Or(st.Instance.Image, row.Image) // the declaration may name another image by now
		if !st.Instance.Created.IsZero() {
			row.Created = &st.Instance.Created
		}
	}
	return row, nil
}

// heldRow sets the message of a held object's row, if the message is empty.
func heldRow(o state.Object, held spec.Hold, message *string) {
	if held != "" && o.Life == state.Alive && *message == "" {
		*message = heldMessage + " " + o.Kind + "/" + o.Name + "`"
	}
}

// heldMessage is the message of a held object, without the object's name that
// ends it.
const heldMessage = "no document declares it any more; remove it with `hostler allow destroy"

// machineStatus returns the state that the API shows for a machine. A machine
// that is being removed is shown as dying, except in the states error and
// unknown.
func machineStatus(life state.Life, s spec.MachineState) spec.MachineState {
	switch {
	case life != state.Alive && s != spec.MachineError && s != spec.MachineUnknown:
		return spec.MachineDying
	case s == "":
		return spec.MachinePending
	default:
		return s
	}
}

// declarationRow converts a declaration object to its row.
func declarationRow(o state.Object) (client.Declaration, error) {
	var rec spec.DeclarationRecord
	if err := o.Decode(&rec, nil); err != nil {
		return client.Declaration{}, err
	}
	objects := slices.Clone(rec.Document.Objects())
	slices.Sort(objects)
	return client.Declaration{
		Name: o.Name, Source: rec.Source, Objects: orEmpty(objects),
		Created: o.Created, Updated: o.Updated, Generation: o.Generation,
	}, nil
}

// typeRow converts a container type object to its row. o is nil for a type that
// was never used.
func typeRow(t spec.ContainerType, o *state.Object) (client.TypeStatus, error) {
	row := client.TypeStatus{Type: string(t), State: "absent"}
	if o == nil {
		return row, nil
	}
	var st spec.TypeStatus
	if err := o.Decode(nil, &st); err != nil {
		return row, err
	}
	if st.State != "" {
		row.State = st.State
	}
	row.Message, row.Supported = st.Message, st.Supported
	row.Attempts, row.NextRetry = st.Attempts.Count, st.Attempts.NextRetry
	return row, nil
}

func eventRow(e state.Event) client.Event {
	return client.Event{
		Seq: e.Seq, Time: e.Time, Object: e.Object.Kind + "/" + e.Object.Name, Level: e.Level, Reason: e.Reason, Message: e.Message,
		Attempt: e.Attempt, Limit: e.Limit, NextRetry: e.NextRetry,
	}
}

// objectView returns the details of an object. If secrets is false, it hides
// user-data and the host's configuration, because both may hold secrets.
func objectView(o state.Object, events []state.Event, secrets bool) (client.Object, error) {
	v := client.Object{
		Kind: o.Kind, Name: o.Name, UID: o.UID, Revision: o.Revision, Generation: o.Generation, Life: string(o.Life),
		Spec: orNull(o.Spec), Status: orNull(o.Status), Created: o.Created, Updated: o.Updated, Events: []client.Event{},
	}
	for _, e := range events {
		v.Events = append(v.Events, eventRow(e))
	}
	if secrets {
		return v, nil
	}
	switch o.Kind {
	case spec.KindMachine:
		var rec spec.MachineRecord
		if err := o.Decode(&rec, nil); err != nil {
			return v, err
		}
		rec.Machine = hideSecrets(rec.Machine)
		v.Spec = spec.Encode(rec)
	case spec.KindDeclaration:
		var rec spec.DeclarationRecord
		if err := o.Decode(&rec, nil); err != nil {
			return v, err
		}
		for name, m := range rec.Document.Machines {
			rec.Document.Machines[name] = hideSecrets(m)
		}
		v.Spec = spec.Encode(rec)
	case spec.KindHost:
		// The configuration may hold the password of a proxy.
		v.Spec = spec.Encode(hidden)
	}
	return v, nil
}

const hidden = "(hidden)"

func hideSecrets(m spec.Machine) spec.Machine {
	if m.CloudInit.UserData != "" {
		m.CloudInit.UserData = hidden
	}
	return m
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
