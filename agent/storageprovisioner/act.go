package storageprovisioner

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
)

// act carries out the due steps in their order, with one bulk call per source
// and action. acted reports whether it has new results. done holds the results
// of earlier calls in this pass. If a step in done succeeded but is due again,
// it now fails. If it failed, it waits for the next pass.
func (w *Worker) act(ctx context.Context, l *look, done map[string]error) (acted bool, err error) {
	entities := map[string]*Entity{}
	for i := range l.desired.Entities {
		entities[l.desired.Entities[i].key()] = &l.desired.Entities[i]
	}
	var due []*job
	for _, s := range l.steps {
		if !s.due(l.policy.Now) {
			continue
		}
		due = append(due, &job{step: s, entity: entities[s.Kind+"/"+s.Name]})
	}
	if len(due) == 0 {
		return false, nil
	}
	defer func() { w.acting(w.Now().Add(ownEventsPause)) }()
	w.acting(w.Now().Add(24 * time.Hour))
	p := newPlanner(l.desired, l.observed, l.policy)
	for len(due) > 0 {
		n := 1
		for n < len(due) && due[n].step.phase() == due[0].step.phase() {
			n++
		}
		finished := w.batch(ctx, p, due[:n], done)
		if ctx.Err() != nil {
			return true, nil //nolint:nilerr // the agent stops; the next one goes on
		}
		if err := w.record(ctx, finished); err != nil {
			return true, err
		}
		acted, due = acted || len(finished) > 0, due[n:]
	}
	return acted, nil
}

// job is a step and its result.
type job struct {
	step   Step
	entity *Entity
	err    error
	took   time.Duration
}

func (j *job) key() string {
	return string(j.step.Action) + " " + j.entity.key() + " " + j.step.Machine
}

// batch carries out the steps of a phase. It makes one bulk call per source and
// action, and all calls in parallel. It returns the jobs that have a new result
// to record.
func (w *Worker) batch(ctx context.Context, p *planner, jobs []*job, done map[string]error) (finished []*job) {
	groups := map[string][]*job{}
	for _, j := range jobs {
		before, called := done[j.key()]
		if before != nil {
			continue
		}
		finished = append(finished, j)
		if called {
			j.err = fault.New(fault.Transient, "cannot %s %s: the operation succeeded but changed nothing", j.step.Action, j.entity.key())
			continue
		}
		group := j.entity.Source + " " + string(j.step.Action)
		groups[group] = append(groups[group], j)
	}
	var calls sync.WaitGroup
	for _, group := range groups {
		calls.Go(func() {
			began := w.Now()
			errs := w.call(ctx, p, group)
			took := w.Now().Sub(began)
			for i, j := range group {
				j.err, j.took = errs[i], took/time.Duration(len(group))
			}
		})
	}
	calls.Wait()
	for _, j := range finished {
		done[j.key()] = j.err
	}
	return finished
}

// events holds the reasons of the actions' events.
var events = map[Action]string{
	ActionDestroy: "Destroyed", ActionRelease: "Released", ActionAdopt: "TakenOver", ActionCreate: "Created",
	ActionGrow: "Grown", ActionDetach: "Detached", ActionAttach: "Attached", ActionHide: "Detached", ActionShow: "Attached",
}

// record writes the results of a phase to the statuses, the event log and the
// metrics.
func (w *Worker) record(life context.Context, jobs []*job) error {
	// Record the results even if the agent is stopping.
	ctx, cancel := reconcile.Outlasting(life)
	defer cancel()
	now := w.Now()
	var writes reconcile.Batch
	var recorded []state.Event
	for _, j := range jobs {
		e := j.entity
		w.Count(string(j.step.Action), j.took, j.err)
		event := state.Event{Time: now, Object: e.id(), UID: e.UID, Level: state.LevelInfo, Reason: events[j.step.Action], Message: j.message()}
		switch {
		case j.err != nil:
			fail(e, j.step, j.err, now)
			writes.Status(e.id(), e.UID, nil, e.Status)
			event.Level, event.Reason, event.Message = state.LevelWarn, "Failed", j.err.Error()
			if busy := (*storage.BusyError)(nil); errors.As(j.err, &busy) {
				w.await(life, e.key(), busy.Holders)
			}
		case j.step.Action == ActionDestroy, j.step.Action == ActionRelease, j.step.Action == ActionForget:
			writes.Remove(e.id(), e.UID)
		case j.step.Action == ActionAdopt:
			e.Status.StampUID = j.step.Changes[0].To
			writes.Status(e.id(), e.UID, nil, e.Status)
		}
		if event.Reason != "" {
			recorded = append(recorded, event)
		}
	}
	if err := w.Write(ctx, writes); err != nil {
		return err
	}
	w.Record(ctx, recorded...)
	return nil
}

// message returns the text of the job's event.
func (j *job) message() string {
	text := j.step.Detail
	if j.step.Machine != "" {
		text = "machine/" + j.step.Machine
	}
	return text
}
