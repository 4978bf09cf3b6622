package lxd

import (
	"slices"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// ownChanges holds the latest creates and starts of this driver, so that it
// need not ask LXD for their outcome again. A listing learns from it whether a
// partial instance is still being created, and a start whether the instance is
// complete.
type ownChanges struct {
	mu       sync.Mutex
	creating map[string]bool
	ended    map[string]time.Time // when creates ended, with success or not
	created  map[string]time.Time
	started  map[string]time.Time
}

// freshTime is how long an instance counts as just created or started.
const freshTime = 5 * time.Second

// beginCreate records that a create begins. The caller must call end when the
// create ends, with whole true if it succeeded.
func (o *ownChanges) beginCreate(name string) (end func(whole bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.creating == nil {
		o.creating, o.created, o.ended = map[string]bool{}, map[string]time.Time{}, map[string]time.Time{}
	}
	o.creating[name] = true
	delete(o.created, name)
	return func(whole bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.creating, name)
		note(o.ended, name)
		if whole {
			note(o.created, name)
		}
	}
}

// note sets an instance's time to now and removes times older than freshTime.
func note(times map[string]time.Time, name string) {
	for other, at := range times {
		if time.Since(at) > freshTime {
			delete(times, other)
		}
	}
	times[name] = time.Now()
}

// wasCreating reports whether a create of the instance was running at any time
// from since on. since is e.g. when a listing began that shows the instance
// half made.
func (o *ownChanges) wasCreating(name string, since time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.creating[name] || o.ended[name].After(since)
}

// takeCreated reports whether the instance was just created. Only the first call
// after the create returns true.
func (o *ownChanges) takeCreated(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ok := o.created[name]
	delete(o.created, name)
	return ok && time.Since(at) <= freshTime
}

func (o *ownChanges) noteStart(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started == nil {
		o.started = map[string]time.Time{}
	}
	note(o.started, name)
}

// sinceStart returns the time since this driver last started the instance, or a
// time of at least freshTime if the driver did not start it lately.
func (o *ownChanges) sinceStart(name string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, ok := o.started[name]; ok {
		return time.Since(at)
	}
	return freshTime
}

// markBusy sets the half-made instances that LXD is still creating to
// StatusBusy. Those whose creation was interrupted, because LXD itself ended,
// stay half made. all is a listing that began at the time began.
func (d *Driver) markBusy(c *client, all []containerbroker.Instance, began time.Time) error {
	unknown := false
	for n := range all {
		if i := &all[n]; i.Status == containerbroker.StatusHalfMade {
			if d.own.wasCreating(i.Name, began) {
				i.Status = containerbroker.StatusBusy
			} else {
				unknown = true
			}
		}
	}
	if !unknown {
		return nil
	}
	ops, err := operations(c)
	if err != nil {
		return err
	}
	for n := range all {
		i := &all[n]
		if i.Status != containerbroker.StatusHalfMade {
			continue
		}
		if slices.ContainsFunc(ops, func(op api.Operation) bool { return concerns(op, i.Name) }) {
			i.Status = containerbroker.StatusBusy
			continue
		}
		// LXD may have finished the creation since the listing.
		now, err := d.read(c, i.Name)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return err
		case !halfMade(now):
			i.Status = containerbroker.StatusBusy // the caller looks again
		}
	}
	return nil
}
