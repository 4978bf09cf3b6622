// Package api is the agent's HTTP interface on its unix socket. It holds the
// server and the table of routes with the required rights. Package client holds
// the messages.
package api

import (
	"cmp"
	"container/list"
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
	// Gatherer provides /metrics. If nil, there is no such route.
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger
	// Clock returns the time. If nil, it is time.Now.
	Clock              func() time.Time
	Version, Namespace string
	// Members of AdminGroup have the right to change, members of ReadGroup to
	// read. A group that does not exist has no members.
	AdminGroup, ReadGroup string
	// ReadersSeeConsoles reports whether readers have the right to read
	// consoles. If nil, only admins have it.
	ReadersSeeConsoles func() bool
	// LookupGroup returns a group's id. If nil, it reads the system's database.
	LookupGroup func(name string) (uint32, error)
	// Workers returns the users and groups of provisioners' units. It is called
	// for each connection, because a package may make them while the agent runs.
	Workers func() Workers
	// Count receives the counts of a type's worker. The server checks the number
	// of counts, but not the names of actions in them. If Count is nil, the
	// server drops the counts.
	Count func(t spec.ContainerType, counts workerapi.Counts)
	// Heartbeat is the pause between two lines of an idle stream. 0 means 15 s.
	Heartbeat time.Duration
	// Unread returns the reason why the declaration files may declare more
	// objects than were read, or "" if they do not. If nil, there are no files.
	Unread func() string
	// Folder is the folder of declaration files. If nil, there are no files.
	Folder Folder
	// Look bounds the time for which an apply observes the host before it writes.
	// 0 means a third of answerTimeout.
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
	// declaring has a capacity of one. It serialises changes, because a change
	// reads the declared state, decides and writes it.
	declaring chan struct{}
	// folder is the last answer of ApplyFolder.
	folder atomic.Pointer[declare.FolderAnswer]
	// awaits is true if documents declare objects that are still being removed.
	awaits atomic.Bool
	// stop ends streams on shutdown, because http.Server leaves them open.
	stop    context.Context
	stopNow context.CancelFunc
	// bodyTime bounds the time to receive a request's body.
	bodyTime time.Duration
	hijacked sync.WaitGroup
}

// NewServer returns a server. Serve starts it.
func NewServer(o Options) (*Server, error) {
	if o.Backend == nil {
		return nil, errors.New("cannot make the API: no store")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Workers == nil {
		o.Workers = func() Workers { return Workers{} }
	}
	if o.LookupGroup == nil {
		o.LookupGroup = lookupGroup
	}
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.Look = cmp.Or(o.Look, answerTimeout/3)
	s := &Server{
		o: o, log: o.Logger, now: o.Clock,
		conns:   newCounter(func(p part) bound { return p.conns }),
		streams: newCounter(func(p part) bound { return p.streams }),
		plans:   newCounter(func(p part) bound { return p.plans }),
		rates:   &rates{now: o.Clock, buckets: map[rated]*bucket{}},
		replays: newReplays(o.Clock),

		declaring: make(chan struct{}, 1),
		bodyTime:  bodyTimeout,
	}
	s.bound = &boundListener{conns: s.conns, refused: newRefusals(s.log).note, idle: map[share]*list.List{}, caller: o.caller}
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

// shutdownTime bounds the time for answers in progress after ctx has ended.
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
	// Streams end now. Other answers get shutdownTime.
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
