package workerapi

import (
	"context"
	"encoding/json"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// writeTries bounds the attempts at a write with AnyRevision. An attempt fails
// if the object changes between the check and the write.
const writeTries = 10

// Write changes the type's machines. It permits only to write a machine's
// status, to make a dying machine dead and to remove a machine that is not
// alive. Write checks each write against the current object and pins it to the
// object's revision, so that no other write comes in between.
func (v *restricted) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	if mode == state.Each {
		return v.writeEach(ctx, writes)
	}
	for try := 1; ; try++ {
		judged, moving, err := v.judgeAll(ctx, writes)
		if err != nil {
			return nil, err
		}
		results, err := v.b.Write(ctx, mode, judged...)
		if !moving || try == writeTries || !fault.Is(err, fault.Conflict) {
			return results, err
		}
	}
}

// writeEach makes all permitted writes in one call. If a write with AnyRevision
// fails because the object has changed, writeEach retries this write alone.
func (v *restricted) writeEach(ctx context.Context, writes []state.Write) ([]state.Result, error) {
	results := make([]state.Result, len(writes))
	var judged []state.Write
	var places []int
	for i, w := range writes {
		j, err := v.judge(ctx, w)
		switch {
		case err == nil:
			judged, places = append(judged, j), append(places, i)
		case fault.KindOf(err) == fault.Transient:
			return nil, err
		default:
			results[i].Err = err
		}
	}
	made, err := v.b.Write(ctx, state.Each, judged...)
	if err != nil {
		return nil, err
	}
	for n, i := range places {
		results[i] = made[n]
		if writes[i].Revision == state.AnyRevision && fault.Is(made[n].Err, fault.Conflict) {
			if results[i], err = v.writeOne(ctx, writes[i]); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

func (v *restricted) writeOne(ctx context.Context, w state.Write) (state.Result, error) {
	for try := 1; ; try++ {
		judged, err := v.judge(ctx, w)
		if err != nil {
			if fault.KindOf(err) == fault.Transient {
				return state.Result{}, err
			}
			return state.Result{Err: err}, nil
		}
		results, err := v.b.Write(ctx, state.Each, judged)
		if err != nil {
			return state.Result{}, err
		}
		if w.Revision != state.AnyRevision || try == writeTries || !fault.Is(results[0].Err, fault.Conflict) {
			return results[0], nil
		}
	}
}

// judgeAll checks the writes of an atomic call. moving is true if one of the
// writes has AnyRevision.
func (v *restricted) judgeAll(ctx context.Context, writes []state.Write) (judged []state.Write, moving bool, err error) {
	for _, w := range writes {
		j, err := v.judge(ctx, w)
		if err != nil {
			return nil, false, err
		}
		judged = append(judged, j)
		moving = moving || w.Revision == state.AnyRevision
	}
	return judged, moving, nil
}

// maxStatus bounds the status of a machine, in bytes.
const maxStatus = 64 << 10

// judge returns the write pinned to the revision of the current object, or an
// error if the write is not permitted.
func (v *restricted) judge(ctx context.Context, w state.Write) (state.Write, error) {
	if w.Kind != spec.KindMachine || w.Revision == 0 {
		return w, fault.New(fault.Forbidden, "you may not write %s/%s", fault.Clip(w.Kind, 64), fault.Clip(w.Name, 256))
	}
	cur, err := v.Get(ctx, w.ID)
	if err != nil {
		return w, err
	}
	if w.Revision != state.AnyRevision && w.Revision != cur.Revision {
		return w, fault.New(fault.Conflict, "cannot write machine/%s at revision %d: it is at revision %d", w.Name, w.Revision, cur.Revision)
	}
	switch {
	case w.Spec != nil:
		return w, fault.New(fault.Forbidden, "you may not write the spec of machine/%s", w.Name)
	case w.Life != "" && w.Life != cur.Life && (cur.Life != state.Dying || w.Life != state.Dead):
		return w, fault.New(fault.Forbidden, "you may not make machine/%s %s: it is %s", w.Name, fault.Clip(string(w.Life), 16), cur.Life)
	case w.Delete && cur.Life == state.Alive:
		return w, fault.New(fault.Forbidden, "you may not delete machine/%s: it is alive", w.Name)
	}
	if len(w.Status) > maxStatus {
		return w, fault.New(fault.Invalid, "cannot write the status of machine/%s: it is longer than %d bytes", w.Name, maxStatus)
	}
	if w.Status != nil {
		if err := checkInstance(cur, w.Status); err != nil {
			return w, err
		}
	}
	w.Revision = cur.Revision
	if w.UID == "" {
		w.UID = cur.UID
	}
	return w, nil
}

// checkInstance returns an error if a status replaces a machine's instance by
// another one or drops the instance of a running machine. A running machine has
// an instance, so the writer of such a status merely forgot it.
func checkInstance(cur state.Object, raw json.RawMessage) error {
	var before, after spec.MachineStatus
	if err := json.Unmarshal(raw, &after); err != nil || after.State == "" {
		return fault.New(fault.Invalid, "cannot write the status of machine/%s: it is not a machine's status", cur.Name)
	}
	if len(cur.Status) > 0 {
		if err := json.Unmarshal(cur.Status, &before); err != nil {
			return fault.New(fault.NeedsOperator, "cannot read the status of machine/%s: %v", cur.Name, err)
		}
	}
	b, a := before.Instance, after.Instance
	if b != nil && a != nil && (b.Name != a.Name || b.Token != a.Token) {
		return fault.New(fault.Conflict, "cannot write another instance of machine/%s: it has %s", cur.Name, b.Name)
	}
	if b != nil && a == nil && after.State == spec.MachineRunning {
		return fault.New(fault.Conflict, "cannot write machine/%s running without its instance %s", cur.Name, b.Name)
	}
	return nil
}
