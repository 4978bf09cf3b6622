package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Options is what a server stands on.
type Options struct {
	Backend state.Backend
	Service Service
	// Gatherer answers /metrics; nil: that route is absent.
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger
	// Clock returns the time; nil: time.Now.
	Clock              func() time.Time
	Version, Namespace string
	// AdminGroup may change, ReadGroup may read; an absent group is nobody.
	AdminGroup, ReadGroup string
	// ReadersSeeConsoles opens consoles to readers; nil: they are the admins'.
	ReadersSeeConsoles func() bool
	// LookupGroup returns a group's id; nil: the system's database.
	LookupGroup func(name string) (uint32, error)
	// WorkerUsers are the provisioners' own users.
	WorkerUsers map[uint32]spec.ContainerType
	// Learned is fault.NotReady as long as the records of a type may be a part
	// of what there is: its worker is told of none then. nil: they are whole.
	Learned func(ctx context.Context, t spec.ContainerType) error
	// Count is given what a type's worker tells of its work, within bounds but
	// for the words in it; nil: nobody counts.
	Count func(t spec.ContainerType, counts WorkerCounts)
	// Heartbeat is the pause between two lines of an idle stream; 0: 15 s.
	Heartbeat time.Duration
	// Unread says why the declaration files may hold more than was read of them,
	// "" when they do not; nil: there are none.
	Unread func() string
	// Look is how long an apply looks at the host before it writes down what is
	// declared; 0: a third of what an answer may take.
	Look time.Duration
}

// Server answers the API.
type Server struct {
	o       Options
	log     *slog.Logger
	now     func() time.Time
	handler http.Handler
	bound   *boundListener
	conns   *counter
	streams *counter
	plans   *counter
	rates   *rates
	replays *replays
	looks   looks
	named   namedImages
	// declaring has room for one: it serialises what reads the declared state,
	// decides and writes it.
	declaring chan struct{}
	// folder is the last answer of ApplyFolder.
	folder atomic.Pointer[FolderAnswer]
	// awaits: documents declare objects that are still being removed.
	awaits atomic.Bool
	// stop ends streams on shutdown, which http.Server leaves open.
	stop    context.Context
	stopNow context.CancelFunc
	// bodyTime is how long a request's body may take to come.
	bodyTime time.Duration
	hijacked sync.WaitGroup
}

// NewServer makes a server; Serve starts it.
func NewServer(o Options) (*Server, error) {
	if o.Backend == nil {
		return nil, errors.New("cannot make the API: no store")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.LookupGroup == nil {
		o.LookupGroup = lookupGroup
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.Look == 0 {
		o.Look = answerTimeout / 3
	}
	s := &Server{
		o: o, log: o.Logger, now: o.Clock,
		conns:   newCounter(func(p part) bound { return p.conns }),
		streams: newCounter(func(p part) bound { return p.streams }),
		plans:   newCounter(func(p part) bound { return p.plans }),
		rates:   newRates(o.Clock),
		replays: newReplays(o.Clock),

		declaring: make(chan struct{}, 1),
		bodyTime:  bodyTimeout,
	}
	s.bound = newBoundListener(s.conns, func(p Peer) caller {
		return callerOf(p, o.WorkerUsers, o.AdminGroup, o.ReadGroup, o.LookupGroup)
	}, newRefusals(s.log).note)
	s.looks = newLooks(s.o)
	s.stop, s.stopNow = context.WithCancel(context.Background())
	h, err := s.newHandler()
	if err != nil {
		return nil, err
	}
	s.handler = h
	return s, nil
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(id), err
}

// shutdownTime is how long answers under way may take once ctx has ended.
const shutdownTime = 5 * time.Second

// Serve answers on l, a unix socket, until ctx ends; it closes l and every
// connection. It is called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := httpServer(s.handler)
	srv.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		pc, ok := c.(*peerConn)
		if !ok {
			return ctx
		}
		return withCaller(ctx, pc.caller)
	}
	s.bound.Listener = l
	srv.ConnState = s.bound.state
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(s.bound) }()
	select {
	case err := <-failed:
		s.stopNow()
		return fmt.Errorf("cannot serve the API: %w", err)
	case <-ctx.Done():
	}
	// Streams end when stop does; other answers get their time.
	s.stopNow()
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := srv.Shutdown(sctx); err != nil {
		_ = srv.Close()
	}
	s.hijacked.Wait()
	<-failed
	return nil
}
