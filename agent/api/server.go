// Package api is the agent's HTTP interface on its unix socket: the route table
// with the required rights, and the server. Package client holds the messages.
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

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/workerapi"
)

// Options are the dependencies and settings of a server.
type Options struct {
	Backend state.Backend
	Service Service
	// Gatherer provides /metrics; nil: the route is absent.
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger
	// Clock returns the time; nil: time.Now.
	Clock              func() time.Time
	Version, Namespace string
	// AdminGroup may change, ReadGroup may read; an absent group has no members.
	AdminGroup, ReadGroup string
	// ReadersSeeConsoles reports whether readers may read consoles; nil: only
	// admins may.
	ReadersSeeConsoles func() bool
	// LookupGroup returns a group's id; nil: the system's database.
	LookupGroup func(name string) (uint32, error)
	// WorkerUsers are the provisioners' own users.
	WorkerUsers map[uint32]spec.ContainerType
	// Learned returns fault.NotReady as long as the records of a type may be
	// incomplete; its worker then gets no list. nil: they are complete.
	Learned func(ctx context.Context, t spec.ContainerType) error
	// Count receives the counts of a type's worker. Their number is checked, the
	// words in them are not. nil: counts are dropped.
	Count func(t spec.ContainerType, counts workerapi.Counts)
	// Heartbeat is the pause between two lines of an idle stream; 0: 15 s.
	Heartbeat time.Duration
	// Unread returns why the declaration files may declare more objects than were
	// read, "" if they do not; nil: there are no files.
	Unread func() string
	// Look bounds the time that an apply observes the host before it writes; 0: a
	// third of answerTimeout.
	Look time.Duration
}

// Server serves the API.
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
	// declaring has a capacity of one: it serialises changes, which read the
	// declared state, decide and write it.
	declaring chan struct{}
	// folder is the last answer of ApplyFolder.
	folder atomic.Pointer[declare.FolderAnswer]
	// awaits: documents declare objects that are still being removed.
	awaits atomic.Bool
	// stop ends streams on shutdown, which http.Server leaves open.
	stop    context.Context
	stopNow context.CancelFunc
	// bodyTime bounds the time to receive a request's body.
	bodyTime time.Duration
	hijacked sync.WaitGroup
}

// NewServer returns a server; Serve starts it.
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

// shutdownTime bounds the time for answers in progress once ctx has ended.
const shutdownTime = 5 * time.Second

// Serve serves on l, a unix socket, until ctx ends. It closes l and every
// connection. Call it once.
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
	// Streams end when stop does; other answers get shutdownTime.
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
