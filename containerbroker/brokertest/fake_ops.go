package brokertest

import (
	"context"
	"fmt"
	"time"

	"hostler/containerbroker"
	kinds "hostler/internal/fault"
)

// List implements containerbroker.Broker.
func (f *Fake) List(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	var all []containerbroker.Instance
	err := f.work(ctx, List, "", func(*fakeInstance) error {
		for _, name := range f.names() {
			if !f.hidden[name] {
				all = append(all, f.instances[name].view(detail))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Create implements containerbroker.Broker.
func (f *Fake) Create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	return f.work(ctx, Create, m.Name, func(g *fakeInstance) error {
		settings, err := containerbroker.SettingsOf(m)
		if err != nil {
			return containerbroker.NotMade(err)
		}
		if g != nil {
			s := g.instance.Stamp
			if s == nil || s.Namespace != m.Stamp.Namespace || s.UID != m.Stamp.UID || s.Token != m.Stamp.Token {
				return containerbroker.NotMade(kinds.New(kinds.Conflict, "cannot create instance %q: the name is taken by another instance", m.Name))
			}
			return nil
		}
		if f.images[m.ImageID] == nil {
			return containerbroker.NotMade(kinds.New(kinds.NotFound, "cannot create instance %q: image %q is not there", m.Name, m.ImageID))
		}
		progress.Report("create", "creating "+m.Name, -1)
		stamp := m.Stamp
		g = &fakeInstance{addresses: addressesOf(m)}
		g.instance = containerbroker.Instance{
			Name: m.Name, Properties: settings.Properties, Stored: settings, Stamp: &stamp, Status: containerbroker.StatusStopped, ImageID: m.ImageID, Created: f.Now(), MACs: macsOf(m),
		}
		f.instances[m.Name] = g
		f.note("create %s", m.Name)
		f.publish(m.Name, "created")
		return nil
	})
}

// Update implements containerbroker.Broker.
func (f *Fake) Update(ctx context.Context, m containerbroker.Machine, changes []containerbroker.Change) error {
	return f.work(ctx, Update, m.Name, func(g *fakeInstance) error {
		if containerbroker.Worst(changes) == containerbroker.ImpactRecreate {
			return kinds.New(kinds.Invalid, "cannot update instance %q: a change needs it to be made again", m.Name)
		}
		want, err := containerbroker.SettingsOf(m)
		if err != nil {
			return err
		}
		if g == nil {
			return kinds.New(kinds.NotFound, "cannot update instance %q: it does not exist", m.Name)
		}
		if !g.bears(m.Stamp) {
			return kinds.New(kinds.Conflict, "cannot update instance %q: it has another stamp", m.Name)
		}
		for _, c := range changes {
			if g.set(c, want) {
				g.instance.Stamp.Store = m.Stamp.Store
				f.note("update %s %s", m.Name, c.Field)
			}
			if _, isNIC := containerbroker.NICOf(c.Field); isNIC {
				g.addresses = addressesOf(m) // the instance gets them at its next start
				g.instance.MACs = macsOf(m)
			}
		}
		f.publish(m.Name, "updated")
		return nil
	})
}

// set makes a change and reports whether that changed a setting. A setting that
// needs a restart is only stored, except for cloud-init's data and interfaces.
func (g *fakeInstance) set(c containerbroker.Change, want containerbroker.Settings) bool {
	i := &g.instance
	changed := i.Stored.Take(c.Field, want)
	_, isNIC := containerbroker.NICOf(c.Field)
	switch {
	case i.Running == nil:
	case c.Impact != containerbroker.ImpactRestart, isNIC,
		c.Field == containerbroker.FieldNetworkConfig, c.Field == containerbroker.FieldUserData:
		changed = i.Running.Take(c.Field, want) || changed
	}
	i.Properties, i.Stamp.Record = i.Stored.Properties, i.Stored.Record
	return changed
}

func (g *fakeInstance) bears(s containerbroker.Stamp) bool {
	have := g.instance.Stamp
	return have != nil && have.Namespace == s.Namespace && have.UID == s.UID
}

// SetPower implements containerbroker.Broker.
func (f *Fake) SetPower(ctx context.Context, name string, to containerbroker.Power, _ time.Duration) error {
	return f.work(ctx, SetPower, name, func(g *fakeInstance) error {
		if g == nil {
			if to == containerbroker.PowerStop {
				return nil
			}
			return kinds.New(kinds.NotFound, "cannot %s instance %q: it does not exist", to, name)
		}
		running := g.instance.Status == containerbroker.StatusRunning
		switch to {
		case containerbroker.PowerStart:
			if running {
				return nil
			}
			f.boot(g)
		case containerbroker.PowerStop:
			if g.instance.Status == containerbroker.StatusStopped {
				return nil
			}
			f.halt(g)
		case containerbroker.PowerRestart:
			f.boot(g)
		default:
			return kinds.New(kinds.Invalid, "cannot set the power of instance %q: unknown state %q", name, to)
		}
		f.note("%s %s", to, name)
		f.publish(name, map[containerbroker.Power]string{
			containerbroker.PowerStart: "started", containerbroker.PowerStop: "stopped", containerbroker.PowerRestart: "restarted",
		}[to])
		return nil
	})
}

// Delete implements containerbroker.Broker.
func (f *Fake) Delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	return f.work(ctx, Delete, name, func(g *fakeInstance) error {
		if g == nil {
			return nil
		}
		if !g.instance.Stamp.Is(expect) {
			return kinds.New(kinds.Conflict, "cannot delete instance %q: it has another stamp", name)
		}
		delete(f.instances, name)
		f.note("delete %s", name)
		f.publish(name, "deleted")
		return nil
	})
}

// Diff implements containerbroker.Differ. A smaller root disk needs a recreate.
func (f *Fake) Diff(m containerbroker.Machine, i containerbroker.Instance) []containerbroker.Change {
	want, err := containerbroker.SettingsOf(m)
	if err != nil {
		return containerbroker.Refused(err)
	}
	want.UserData = containerbroker.ComparableUserData(m, want.UserData, i.Stored.UserData)
	return containerbroker.Compare(want, i, func(field string, want containerbroker.Settings, i containerbroker.Instance) (containerbroker.Impact, string) {
		if field == containerbroker.FieldRootDisk && want.RootDisk != 0 && want.RootDisk < i.Stored.RootDisk {
			return containerbroker.ImpactRecreate, "a root disk cannot shrink"
		}
		return "", ""
	})
}

// Stamp implements containerbroker.Stamper.
func (f *Fake) Stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	return f.work(ctx, Stamp, name, func(g *fakeInstance) error {
		if g == nil {
			return kinds.New(kinds.NotFound, "cannot stamp instance %q: it does not exist", name)
		}
		if err := containerbroker.MayStamp(g.instance.Stamp, seen, s); err != nil {
			return fmt.Errorf("cannot stamp instance %q: %w", name, err)
		}
		if have := g.instance.Stamp; have == nil || have.UID != s.UID {
			g.leaveDevices()
		}
		if have := g.instance.Stamp; have == nil || *have != s {
			g.instance.Stamp = &s
			g.store()
			f.note("stamp %s", name)
			f.publish(name, "updated")
		}
		return nil
	})
}

// Unstamp implements containerbroker.Stamper.
func (f *Fake) Unstamp(ctx context.Context, name string, seen containerbroker.Stamp) error {
	return f.work(ctx, Unstamp, name, func(g *fakeInstance) error {
		if g != nil && g.instance.Stamp != nil {
			if err := containerbroker.MayUnstamp(g.instance.Stamp, seen); err != nil {
				return fmt.Errorf("cannot release instance %q: %w", name, err)
			}
			g.instance.Stamp = nil
			g.store()
			f.note("unstamp %s", name)
			f.publish(name, "updated")
		}
		return nil
	})
}

// Events implements containerbroker.EventSource.
func (f *Fake) Events(ctx context.Context) (<-chan containerbroker.Event, error) {
	lost, err := f.enter(ctx, Events, "")
	if err != nil {
		return nil, err
	}
	if lost != nil {
		return nil, lost
	}
	ch := make(chan containerbroker.Event, 1024)
	f.mu.Lock()
	f.streams[ch] = true
	f.mu.Unlock()
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drop(ch)
	})
	return ch, nil
}

func (f *Fake) drop(ch chan containerbroker.Event) {
	if f.streams[ch] {
		delete(f.streams, ch)
		close(ch)
	}
}

// publish sends an event to every stream. It closes a stream whose buffer is
// full, so that the reader lists the instances again instead of missing an
// event.
func (f *Fake) publish(name, action string) {
	for ch := range f.streams {
		select {
		case ch <- containerbroker.Event{Instance: name, Action: action}:
		default:
			f.drop(ch)
		}
	}
}
