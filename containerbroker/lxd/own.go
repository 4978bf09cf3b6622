package lxd

import (
	"slices"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// ownChanges holds the latest creates and starts of this driver, so that it need
// not ask LXD for their outcome again: a listing whether a partial instance is
// still being created, a start whether the instance is complete.
type ownChanges struct {
	mu       sync.Mutex
	creating map[string]bool
	created  map[string]time.Time
	started  map[string]time.Time
}

// freshTime is how long an instance counts as just created or started.
const freshTime = 5 * time.Second

// beginCreate notes a create; the returned function ends it.
func (o *ownChanges) beginCreate(name string) (end func(whole bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.creating == nil {
		o.creating, o.created = map[string]bool{}, map[string]time.Time{}
	}
	o.creating[name] = true
	delete(o.created, name)
	return func(whole bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.creating, name)
		if whole {
			note(o.created, name)
		}
	}
}

// note sets an instance's time and drops old times.
func note(times map[string]time.Time, name string) {
	for other, at := range times {
		if time.Since(at) > freshTime {
			delete(times, other)
		}
	}
	times[name] = time.Now()
}

func (o *ownChanges) isCreating(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.creating[name]
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

// sinceStart returns the time since the instance's latest start, at least
// freshTime if this driver did not just start it.
func (o *ownChanges) sinceStart(name string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, ok := o.started[name]; ok {
		return time.Since(at)
	}
	return freshTime
}

// markBusy separates the instances that LXD is still creating from those whose
// creation LXD's own end interrupted.
func (d *Driver) markBusy(c *client, all []containerbroker.Instance) error {
	unknown := false
	for n := range all {
		if i := &all[n]; i.Status == containerbroker.StatusHalfMade {
			if d.own.isCreating(i.Name) {
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
		// LXD may have finished it since the listing.
		now, err := d.read(c, i.Name)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return err
		case !halfMade(now):
			i.Status = containerbroker.StatusBusy // look again
		}
	}
	return nil
}
