package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

const (
	// stopTimeout is the time that an instance has to shut down.
	stopTimeout = 30 * time.Second
	// opTimeout bounds one request to the hypervisor.
	opTimeout = 10 * time.Minute
	// lostRequest is the age from which the intent of a create without an
	// instance shows that the request never reached the hypervisor.
	lostRequest = 2 * opTimeout
	// readyTimeout bounds the wait until an instance is usable. A first boot that
	// installs packages takes minutes.
	readyTimeout = 15 * time.Minute
)

// create creates the instance and starts it if the machine should run. It
// writes an intent durably before the request and removes the intent after it
// has recorded the result.
func (o *operation) create(ctx context.Context) error {
	w, ref := o.w, o.d.Record.Machine.Image
	lap := w.laps()
	image, err := o.fetch(ctx, ref)
	if err != nil {
		return err
	}
	took := spec.Took{Image: lap()}
	if err := o.removing.wait(ctx); err != nil {
		return err
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	took.Turn = lap()
	o.d.Status.Instance, o.d.Status.Addresses = nil, nil
	setReady(&o.d.Status, false, "Creating", "", w.Now())
	o.show(ctx, "creating")

	token := w.NewToken()
	intent := state.Intent{
		Token: token, Object: o.d.id(), UID: o.d.UID,
		Action: string(ActionCreate), Began: w.Now(), Owner: string(w.Type),
	}
	if err := o.closeIntents(ctx, w.Now().Add(-lostRequest)); err != nil {
		return err
	}
	if err := w.Store.Begin(ctx, intent); err != nil {
		return fmt.Errorf("cannot begin to create the instance: %w", err)
	}
	m := o.d.Machine
	// The create fixes the pool. A later configuration does not move the root
	// disk.
	m.ImageID, m.Stamp.Token, m.Pool = image, token, w.currentConfig().Pool
	opCtx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := w.Broker.Create(opCtx, m, o.progress(ctx)); err != nil {
		// An open intent makes the machine's removal wait for the user's consent.
		if containerbroker.IsNotMade(err) {
			if unclosed := w.Store.End(ctx, token); unclosed != nil {
				w.Logger.Warn("The intent of a refused create cannot be closed.", "machine", o.d.Name, "error", unclosed)
			}
		}
		return fmt.Errorf("cannot create the instance: %w", err)
	}
	took.Create = lap()
	o.d.Status.Took = &took
	if err := failpoint.Hit(failpoint.LXDCreatedNotRecorded); err != nil {
		return err
	}
	if err := o.made(ctx, token, ref, image); err != nil {
		// Delete the unrecorded instance at once, since it has never run. If the
		// deletion fails too, the open intent lets a later pass find the instance
		// by its stamp.
		if undo := w.Broker.Delete(context.WithoutCancel(opCtx), m.Name, m.Stamp); undo != nil {
			return fmt.Errorf("cannot record the new instance: %w (and cannot remove it: %v)", err, undo)
		}
		return fmt.Errorf("cannot record the new instance, so it was removed: %w", err)
	}
	o.event(ctx, state.LevelInfo, "Created", "made from "+oneline.Address(ref))
	if !o.d.wantsRunning() {
		return nil
	}
	if _, err := o.stillWanted(ctx); err != nil { // the create may have taken minutes
		return err
	}
	return o.start(ctx)
}

// made records the machine's new instance in the status and closes the
// machine's intents.
func (o *operation) made(ctx context.Context, token, ref, image string) error {
	o.d.Status.Instance = &spec.InstanceInfo{Name: o.d.instanceName(), Token: token, Image: ref, ImageID: image, Created: o.w.Now()}
	o.d.Status.StartedAt, o.d.Status.Deaths = nil, 0
	o.d.Status.RestartsDone = o.d.Record.RestartRequest
	if err := o.save(ctx); err != nil {
		o.d.Status.Instance = nil
		return err
	}
	return o.closeIntents(ctx, o.w.Now())
}

// closeIntents removes the machine's intents that began at by or earlier.
func (o *operation) closeIntents(ctx context.Context, by time.Time) error {
	intents, err := o.w.Store.Intents(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	var tokens []string
	for _, in := range intents {
		if in.UID == o.d.UID && !in.Began.After(by) {
			tokens = append(tokens, in.Token)
		}
	}
	if len(tokens) == 0 {
		return nil
	}
	return fault.Explain(o.w.Store.End(ctx, tokens...), "cannot close the journal's intents")
}

// record records in the status the instance that an earlier attempt created.
func (o *operation) record(ctx context.Context, s Step) error {
	if err := o.made(ctx, s.Instance.Stamp.Token, stampedImage(s.Instance.Stamp.Record, o.d.Record.Machine.Image), s.Instance.ImageID); err != nil {
		return err
	}
	o.event(ctx, state.LevelInfo, "Recorded", "found by its stamp")
	return nil
}

// start starts the instance and waits until it is usable.
func (o *operation) start(ctx context.Context) error {
	if err := o.power(ctx, containerbroker.PowerStart); err != nil {
		return err
	}
	o.event(ctx, state.LevelInfo, "Started", "")
	return o.ready(ctx)
}

// power starts or restarts the instance. It records the time of the start. It
// also counts how often the instance died soon after a start, because
// deathPause() delays the next start accordingly.
func (o *operation) power(ctx context.Context, to containerbroker.Power) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	now := o.w.Now()
	s := &o.d.Status
	if s.StartedAt != nil && to == containerbroker.PowerStart && now.Sub(*s.StartedAt) < o.d.deathPause()+quickDeath {
		s.Deaths++
	} else {
		s.Deaths = 0
	}
	setReady(s, false, "Starting", "", now)
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	o.runs = false
	lap := o.w.laps()
	if err := o.w.Broker.SetPower(ctx, o.d.instanceName(), to, stopTimeout); err != nil {
		return fmt.Errorf("cannot %s the instance: %w", to, err)
	}
	o.runs = true
	s.Took = startTook(s.Took, lap())
	if err := failpoint.Hit(failpoint.LXDStartedNotRecorded); err != nil {
		return err
	}
	s.StartedAt, s.Boot, s.Addresses = &now, o.w.currentConfig().Host.Boot, nil // it may have others than before
	s.RestartsDone, s.RestartBegun = o.d.Record.RestartRequest, nil
	s.State, s.Message = spec.MachineProvisioning, "booting"
	return o.save(ctx)
}

// quickDeath is the running time below which the end of an instance counts as a
// death soon after its start.
const quickDeath = 10 * time.Second

// ready waits until the instance is usable. It gives back the operation's slot
// before the wait.
func (o *operation) ready(ctx context.Context) error {
	o.leaveSlot()
	s := &o.d.Status
	detail, lap := "", o.w.laps()
	if probe, ok := o.w.Broker.(containerbroker.ReadinessProbe); ok {
		waitCtx, done := o.wait(ctx, &o.d.Machine)
		defer done()
		if err := o.w.waiting.Acquire(waitCtx); err != nil {
			if overtaken(waitCtx) {
				return errOvertaken
			}
			return err
		}
		defer o.w.waiting.Release()
		limited, cancel := context.WithTimeout(waitCtx, readyTimeout)
		defer cancel()
		found, err := probe.WaitReady(limited, o.d.Machine, o.progress(ctx))
		if err != nil && overtaken(waitCtx) {
			return errOvertaken
		}
		if err != nil {
			return fmt.Errorf("the instance runs but is not ready: %w", err)
		}
		s.Addresses, detail = found.Addresses[:min(len(found.Addresses), containerbroker.MaxAddresses)], found.Summary()
		s.Took = bootTook(s.Took, lap(), found.CloudInitTook)
	}
	clearFailure(s)
	setReady(s, true, "Usable", detail, o.w.Now())
	s.State, s.Message, s.Percent = spec.MachineRunning, "", nil
	if s.RestartedFor != nil { // the next pass looks whether the restart made the changes
		s.State, s.Message = spec.MachineProvisioning, "checking the changes"
	}
	s.ObservedGeneration = o.d.Generation
	o.event(ctx, state.LevelInfo, "Ready", detail)
	return o.save(ctx)
}

func (o *operation) stop(ctx context.Context) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	o.show(ctx, "stopping")
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := o.w.Broker.SetPower(ctx, o.d.instanceName(), containerbroker.PowerStop, stopTimeout); err != nil {
		return fmt.Errorf("cannot stop the instance: %w", err)
	}
	o.event(ctx, state.LevelInfo, "Stopped", "")
	o.d.Status.StartedAt, o.d.Status.Deaths = nil, 0
	return o.save(ctx)
}

func (o *operation) update(ctx context.Context, s Step) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	m := o.d.Machine
	if o.d.Status.Instance != nil {
		m.Stamp.Token = o.d.Status.Instance.Token
	}
	// The stamp holds the record's revision, so the store must not lose this
	// revision in a power cut.
	if err := o.w.Store.Sync(ctx); err != nil {
		return fmt.Errorf("cannot write the store: %w", err)
	}
	m.KeepGuest = m.KeepGuest || len(o.d.Waiting) > 0 // some guest data is still unknown
	if err := o.w.Broker.Update(ctx, m, s.Changes); err != nil {
		return fmt.Errorf("cannot change %s: %w", fields(s.Changes), err)
	}
	if slices.ContainsFunc(s.Changes, func(c containerbroker.Change) bool { _, is := containerbroker.DiskOf(c.Field); return is }) {
		if err := failpoint.Hit(failpoint.DeviceNotRecorded); err != nil {
			return err
		}
	}
	if text := describe(s.Changes); text != "" {
		o.event(ctx, state.LevelInfo, "Updated", text)
	}
	return nil
}

// recreate deletes the instance and creates it again. It fetches the image
// first, so that the instance stays if the image is missing.
func (o *operation) recreate(ctx context.Context, s Step) error {
	if _, err := o.fetch(ctx, o.d.Record.Machine.Image); err != nil {
		return err
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	if err := o.announce(ctx, "deleting, to make it again"); err != nil {
		return err
	}
	if err := o.remove(ctx, *s.Instance.Stamp, s.Instance.Name); err != nil {
		return err
	}
	o.event(ctx, state.LevelInfo, "Deleted", s.Detail)
	o.leaveSlot()
	return o.create(ctx)
}

// delete deletes the instance and then the record.
func (o *operation) delete(ctx context.Context, s Step) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	o.show(ctx, "deleting")
	if err := o.remove(ctx, *s.Instance.Stamp, s.Instance.Name); err != nil {
		return err
	}
	o.event(ctx, state.LevelInfo, "Deleted", "")
	return o.forget(ctx)
}

func (o *operation) remove(ctx context.Context, stamp containerbroker.Stamp, name string) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := o.w.Broker.Delete(ctx, name, stamp); err != nil {
		return fmt.Errorf("cannot delete the instance: %w", err)
	}
	return failpoint.Hit(failpoint.LXDDeletedNotRecorded)
}

// forget removes the record, unless the machine was declared again meanwhile.
func (o *operation) forget(ctx context.Context) error {
	found, err := o.stillWanted(ctx)
	if err != nil {
		return err
	}
	err = o.w.Put(ctx, state.Write{ID: found.ID, UID: found.UID, Revision: found.Revision, Delete: true})
	switch {
	case fault.Is(err, fault.Conflict):
		return errOvertaken // the record has changed since the read, so the next pass plans again
	case err != nil && !fault.Is(err, fault.NotFound):
		return fmt.Errorf("cannot remove the record: %w", err)
	}
	o.gone = true
	return o.closeIntents(ctx, o.w.Now())
}

// describe formats changes for an event, e.g. "cpus: 2 → 4".
func describe(changes []containerbroker.Change) string {
	var texts []string
	for _, c := range changes {
		if c.Field != containerbroker.FieldRecord {
			texts = append(texts, fmt.Sprintf("%s: %s → %s", c.Field, c.From, c.To))
		}
	}
	return strings.Join(texts, ", ")
}
