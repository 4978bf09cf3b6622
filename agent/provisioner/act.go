package provisioner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// act starts the steps that are due and returns the time at which the next step
// falls due, or zero if there is none. Each machine has its own goroutine,
// which carries out the machine's steps in order. Steps that create instances
// wait until all removals of this pass have ended.
func (w *Worker) act(ctx context.Context, desired []Desired, steps []Step, nudged map[string]bool, now time.Time) time.Time {
	records := make(map[string]Desired, len(desired))
	for _, d := range desired {
		records[d.Name] = d
	}
	var next time.Time
	for _, d := range desired {
		// A failed machine may have no step until its retry is due, so its retry
		// time counts as well.
		if retry := d.Status.Attempts.NextRetry; retry != nil && retry.After(now) {
			next = reconcile.Earliest(next, *retry)
		}
	}
	due := map[string][]Step{}
	var order []string
	for _, s := range steps {
		if s.Held != "" || s.Waiting != "" || s.Action == ActionConflict {
			continue
		}
		if until := w.pausedUntil(s.Machine, nudged, now); until.After(s.After) {
			s.After = until
		}
		if s.After.After(now) {
			next = reconcile.Earliest(next, s.After)
			continue
		}
		if len(due[s.Machine]) == 0 {
			order = append(order, s.Machine)
		} else if due[s.Machine][0].UID != s.UID {
			continue // an earlier machine of this name: its steps run in a later pass
		}
		due[s.Machine] = append(due[s.Machine], s)
	}
	removing := &removals{gone: make(chan struct{})}
	for _, name := range order {
		o := &operation{w: w, steps: due[name], removing: removing}
		if inst := o.steps[0].Instance; inst != nil {
			o.runs = inst.Status != containerbroker.StatusStopped
		}
		if d := records[name]; d.UID == o.steps[0].UID {
			o.d = d
		}
		if o.steps[0].removes() {
			removing.left.Add(1)
		} else if !w.queueUp(o, nudged) {
			continue // the queue is full: a later pass starts the operation
		}
		w.mu.Lock()
		w.busy[name] = true
		w.mu.Unlock()
		w.Tasks.Go(func() { o.run(ctx) })
	}
	removing.close()
	return next
}

// operation carries out the steps of a machine in order. It ends at the first
// failure.
type operation struct {
	w        *Worker
	d        Desired
	steps    []Step
	removing *removals
	// mu guards the status, because other goroutines write the driver's progress
	// into it. Each save or message raises phase, so that progress() can drop
	// late reports of an earlier phase.
	mu       sync.Mutex
	phase    int
	reported time.Time
	place    bool // holds a slot of the limiter
	queued   bool // waits for its first slot, counted in Worker.queued
	gone     bool // the record was removed
	runs     bool // the instance ran before, or was started
}

func (o *operation) run(ctx context.Context) {
	w := o.w
	if slices.ContainsFunc(o.steps, func(s Step) bool { return s.Action == ActionStart }) {
		// Set Boot even if the start fails, because the user wanted the machine
		// to run during this boot of the host.
		o.d.Status.Boot = w.currentConfig().Host.Boot
	}
	removes := o.steps[0].removes()
	name := o.steps[0].Machine
	err := o.each(ctx)
	if err == nil {
		w.mu.Lock()
		delete(w.paused, name)
		w.mu.Unlock()
		despite := slices.ContainsFunc(o.steps, func(s Step) bool { return s.DespiteFailure })
		if !o.gone && !despite && o.d.Status.Attempts.ErrorKind != "" {
			clearFailure(&o.d.Status)
			if err := o.save(ctx); err != nil {
				w.Logger.Warn("A success cannot be recorded.", "machine", name, "error", err)
			}
		}
	}
	if removes {
		o.removing.left.Done()
	}
	w.leaveQueue(o)
	w.mu.Lock()
	delete(w.busy, name)
	w.ended[name] = w.Now()
	switch {
	case len(w.busy) == 0:
		w.Signal()
	case err == nil && (o.gone || isReady(&o.d.Status) && o.d.Status.RestartedFor == nil):
		if slices.ContainsFunc(o.steps, func(s Step) bool { return s.Action == ActionUpdate }) {
			w.SignalWithin(gatherSettled) // the next pass records what the update made
		} else {
			w.SignalWithin(w.listings.settled())
		}
	default:
		w.SignalWithin(gather)
	}
	w.mu.Unlock()
}

// each carries out the steps in order. It stops at the first failure and
// records it.
func (o *operation) each(ctx context.Context) error {
	for _, step := range o.steps {
		began := o.w.Now()
		err := o.doRecovering(ctx, step)
		o.leaveSlot()
		if !errors.Is(err, errOvertaken) {
			o.w.Count(string(step.Action), o.w.Now().Sub(began), err)
		}
		if err != nil {
			o.failed(ctx, step, err)
			return err
		}
	}
	return nil
}

// doRecovering carries out a step and turns a panic into an error, so that the
// panic ends only this machine's operation.
func (o *operation) doRecovering(ctx context.Context, s Step) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.New(fault.Transient, "panic: %v", p)
			o.w.Logger.Error("An operation ended in a panic.", "machine", s.Machine, "action", s.Action, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return o.do(ctx, s)
}

func (o *operation) do(ctx context.Context, s Step) error {
	switch s.Action {
	case ActionDelete:
		return o.delete(ctx, s)
	case ActionHarvest:
		return o.harvest(ctx, s)
	case ActionRelease:
		return o.release(ctx, s)
	case ActionForget:
		return o.forgetWithoutVolumes(ctx, s)
	case ActionStop:
		return o.stop(ctx)
	case ActionRecord:
		return o.record(ctx, s)
	case ActionUpdate:
		return o.update(ctx, s)
	case ActionRecreate:
		return o.recreate(ctx, s)
	case ActionCreate:
		return o.create(ctx)
	case ActionStart:
		if s.Instance.Status == containerbroker.StatusFrozen {
			return o.resume(ctx)
		}
		return o.start(ctx)
	case ActionRestart:
		return o.restart(ctx, s)
	case ActionReady:
		return o.ready(ctx)
	}
	return fault.New(fault.Invalid, "cannot carry out a step of action %q", s.Action)
}

// failed records the failure of a step in the machine's status and as an event.
// If the agent is stopping, failed records nothing, because the next agent
// looks at the machine again.
func (o *operation) failed(ctx context.Context, s Step, err error) {
	if ctx.Err() != nil || errors.Is(err, errOvertaken) {
		return
	}
	w, config := o.w, o.w.currentConfig()
	err = withConsole(err, s.Machine, config.ReadersSeeConsoles)
	if o.d.UID == "" { // an orphan has no record for the failure
		w.pauseFor(s.Machine, err)
		o.event(ctx, state.LevelWarn, "Failed", string(s.Action)+": "+err.Error())
		return
	}
	if s.DespiteFailure {
		o.recordLaterFailure(ctx, s, err)
		return
	}
	o.d.Status.ObservedGeneration = o.d.Generation
	o.d.Status.StartFailed = !o.runs
	o.d.Status.FailedStep = &spec.FailedStep{Action: string(s.Action)}
	for _, c := range s.Changes {
		o.d.Status.FailedStep.Fields = append(o.d.Status.FailedStep.Fields, c.Field)
	}
	Fail(&o.d.Status, o.d.UID, err, RetryPolicy{Retries: config.StartRetries, Delay: config.RetryDelay, Interval: config.TransientRetryInterval}, w.Now())
	unsaved := o.save(ctx)
	if unsaved != nil {
		w.Logger.Warn("A failure cannot be recorded.", "machine", s.Machine, "error", unsaved)
	}
	if unsaved != nil || s.Action == ActionForget && len(s.Changes) == 0 { // the recorded failure does not delay such a step
		w.pauseFor(s.Machine, err)
	}
	e := o.newEvent(state.LevelWarn, "Failed", string(s.Action)+": "+err.Error())
	if o.d.Status.State == spec.MachineError {
		e.Level = state.LevelError
	}
	if spec.ConditionOf(o.d.Status.Conditions, ConditionFailed).Reason == reasonRetrying {
		e.Attempt, e.Limit, e.NextRetry = o.d.Status.Attempts.Count, config.StartRetries, o.d.Status.Attempts.NextRetry
	}
	w.Record(ctx, e)
}

// enter waits for a slot of the limiter. It returns errOvertaken if the
// machine's declaration changed meanwhile. leaveSlot gives the slot back, and
// does nothing if the operation has none.
func (o *operation) enter(ctx context.Context) error {
	if o.place {
		return nil
	}
	if !o.w.limiter.TryAcquire() {
		if o.d.UID != "" {
			o.show(ctx, fmt.Sprintf("waiting for its turn (%d at once)", o.w.currentConfig().Concurrency))
		}
		if err := o.w.limiter.Acquire(ctx); err != nil {
			return err
		}
	}
	o.place = true
	o.w.leaveQueue(o)
	_, err := o.stillWanted(ctx)
	return err
}

func (o *operation) leaveSlot() {
	if o.place {
		o.place = false
		o.w.limiter.Release()
	}
}

// save writes the machine's status. The write need not be durable, because after
// a power cut the intent or the instance shows a lost result. save also writes
// while the agent is stopping, so that a known result is not lost.
func (o *operation) save(ctx context.Context) error {
	ctx, cancel := reconcile.Outlasting(ctx)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.phase++
	return o.w.Put(ctx, reconcile.StatusWrite(o.d.id(), o.d.UID, o.d.Status))
}

func (o *operation) event(ctx context.Context, level, reason, message string) {
	o.w.Record(ctx, o.newEvent(level, reason, message))
}

func (o *operation) newEvent(level, reason, message string) state.Event {
	e := state.Event{Object: state.ID{Kind: spec.KindMachine, Name: o.steps[0].Machine}, UID: o.d.UID, Level: level, Reason: reason, Message: message}
	if o.d.UID == "" { // an orphan: no machine of this name exists
		e.Object = state.ID{Kind: spec.KindContainerType, Name: string(o.w.Type)}
		e.Message = "instance " + o.steps[0].Machine + ": " + message
	}
	return e
}
