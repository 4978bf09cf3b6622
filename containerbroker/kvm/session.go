package kvm

import (
	"context"
	"sync"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/kvm/rpc"
)

// session is the connection that listings and events share, with what was
// read of each domain's definition. libvirt tells when a definition changes,
// so that a pass over domains that stay as they are reads none of them; the
// whole is forgotten with the connection, and every rereadEvery, for the few
// changes that libvirt tells nobody of.
type session struct {
	*conn

	mu     sync.Mutex
	known  map[libvirt.UUID]definition
	stale  map[libvirt.UUID]uint64 // counts the changes of each domain
	fresh  time.Time
	listen map[chan rpc.Event]bool
}

// rereadEvery is how old what is known of the definitions may get.
const rereadEvery = time.Hour

// watched are the events that say that a domain changed.
var watched = []libvirt.DomainEventID{
	libvirt.DomainEventIDLifecycle, libvirt.DomainEventIDReboot, libvirt.DomainEventIDDeviceRemoved,
	libvirt.DomainEventIDAgentLifecycle, libvirt.DomainEventIDDeviceAdded, libvirt.DomainEventIDMetadataChange,
}

// session returns the kept connection, made anew when it is gone.
func (d *Driver) session(ctx context.Context) (*session, error) {
	d.mu.Lock()
	s := d.kept
	d.mu.Unlock()
	if s != nil {
		select {
		case <-s.Gone:
		default:
			return s, nil
		}
	}
	s = &session{
		known: map[libvirt.UUID]definition{}, stale: map[libvirt.UUID]uint64{},
		listen: map[chan rpc.Event]bool{}, fresh: time.Now(),
	}
	// It outlives the listing that makes it; its calls have a limit each.
	c, err := d.dial(context.WithoutCancel(ctx), s.heard)
	if err != nil {
		return nil, err
	}
	s.conn = c
	for _, id := range watched {
		err := c.Call("ask libvirt for events", func(l *libvirt.Libvirt) error {
			_, err := l.ConnectDomainEventCallbackRegisterAny(int32(id), nil)
			return err
		})
		if err != nil {
			c.Close()
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.kept; other != nil {
		select {
		case <-other.Gone:
		default: // somebody was quicker
			c.Close()
			return other, nil
		}
	}
	d.kept = s
	go func() {
		<-s.Gone
		s.mu.Lock()
		defer s.mu.Unlock()
		for to := range s.listen {
			close(to)
		}
		s.listen = nil
	}()
	return s, nil
}

// heard takes an event, in the goroutine that reads the connection.
func (s *session) heard(e rpc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale[e.UUID]++
	delete(s.known, e.UUID)
	for to := range s.listen {
		select {
		case to <- e:
		default: // too slow: its stream ends, and it lists again
			close(to)
			delete(s.listen, to)
		}
	}
}

// subscribe returns a channel of events that is closed with the session.
func (s *session) subscribe() (chan rpc.Event, bool) {
	to := make(chan rpc.Event, eventBuffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen == nil {
		return nil, false
	}
	s.listen[to] = true
	return to, true
}

func (s *session) unsubscribe(to chan rpc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen[to] {
		delete(s.listen, to)
		close(to)
	}
}

// changed forgets what is known of a domain: this process changes it.
func (d *Driver) changed(id libvirt.UUID) {
	d.mu.Lock()
	s := d.kept
	d.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale[id]++
	delete(s.known, id)
}

// recall returns what is known of a domain's definition, and a mark to give to
// remember with what is read instead.
func (s *session) recall(id libvirt.UUID) (definition, bool, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.fresh) > rereadEvery {
		clear(s.known)
		s.fresh = time.Now()
	}
	known, ok := s.known[id]
	return known, ok, s.stale[id]
}

// remember keeps what was read, unless the domain changed meanwhile.
func (s *session) remember(id libvirt.UUID, known definition, mark uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale[id] == mark {
		s.known[id] = known
	}
}

// forgetAllBut keeps the memory as small as the listing.
func (s *session) forgetAllBut(there map[libvirt.UUID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.known {
		if !there[id] {
			delete(s.known, id)
		}
	}
	for id := range s.stale {
		if !there[id] {
			delete(s.stale, id)
		}
	}
}
