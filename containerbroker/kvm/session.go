package kvm

import (
	"context"
	"sync"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/kvm/rpc"
)

// session is the connection that listings and events share, together with a
// cache of domain definitions. libvirt sends an event when a definition
// changes, so a listing need not read unchanged domains. The cache is emptied
// when the connection is lost, and every rereadEvery because of the few changes
// without an event.
type session struct {
	*conn

	mu     sync.Mutex
	known  map[libvirt.UUID]definition
	stale  map[libvirt.UUID]uint64 // counts the changes of each domain
	fresh  time.Time
	listen map[chan rpc.Event]func(rpc.Event) bool // with the events that each wants
}

// rereadEvery is the maximum age of the cached definitions.
const rereadEvery = time.Hour

// watched are the events that report a changed domain.
var watched = []libvirt.DomainEventID{
	libvirt.DomainEventIDLifecycle, libvirt.DomainEventIDReboot, libvirt.DomainEventIDDeviceRemoved,
	libvirt.DomainEventIDAgentLifecycle, libvirt.DomainEventIDDeviceAdded, libvirt.DomainEventIDMetadataChange,
}

// session returns the shared connection. If the connection was lost, it opens a
// new one.
func (d *Driver) session(ctx context.Context) (*session, error) {
	d.mu.Lock()
	s := d.cached
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
		listen: map[chan rpc.Event]func(rpc.Event) bool{}, fresh: time.Now(),
	}
	// The connection outlives the listing that opens it; each call on it has
	// its own limit.
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
	if other := d.cached; other != nil {
		select {
		case <-other.Gone:
		default: // another goroutine was faster
			c.Close()
			return other, nil
		}
	}
	d.cached = s
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

// heard handles an event. It runs in the goroutine that reads the connection.
func (s *session) heard(e rpc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale[e.UUID]++
	delete(s.known, e.UUID)
	for to, wanted := range s.listen {
		if !wanted(e) {
			continue
		}
		select {
		case to <- e:
		default: // the subscriber is too slow; end its stream, so that it lists again
			close(to)
			delete(s.listen, to)
		}
	}
}

// subscribe returns a channel of the wanted events, which is closed when the
// session ends or when more than buffer events wait in it. It returns false if
// the session has already ended.
func (s *session) subscribe(buffer int, wanted func(rpc.Event) bool) (chan rpc.Event, bool) {
	to := make(chan rpc.Event, buffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen == nil {
		return nil, false
	}
	s.listen[to] = wanted
	return to, true
}

func (s *session) unsubscribe(to chan rpc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.listen[to]; open {
		delete(s.listen, to)
		close(to)
	}
}

// changed drops a domain from the cache, because this process changes the
// domain.
func (d *Driver) changed(id libvirt.UUID) {
	d.mu.Lock()
	s := d.cached
	d.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale[id]++
	delete(s.known, id)
}

// recall returns the cached definition of a domain, and whether there is one.
// The caller passes the mark to remember() with a newly read definition.
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

// remember caches a definition, unless the domain changed since the mark was
// taken.
func (s *session) remember(id libvirt.UUID, known definition, mark uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale[id] == mark {
		s.known[id] = known
	}
}

// forgetAllBut drops cached domains that are absent from the listing.
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
