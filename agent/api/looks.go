package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"hostler/agent/client"
	"hostler/internal/fault"
)

// lookAge is the maximum age of an answer about the whole host that a reader
// gets. Readers share answers, because a reader may ask in a loop.
const lookAge = 2 * time.Second

// looks holds the answers that require an observation of the whole host.
type looks struct {
	doctor       *shared[[]client.Check]
	blockDevices *shared[[]client.BlockDevice]
	images       *shared[imagesOut]
}

func newLooks(o Options) looks {
	return looks{
		doctor:       newShared(o, func(ctx context.Context) ([]client.Check, error) { return o.Service.Host.Doctor(ctx) }),
		blockDevices: newShared(o, func(ctx context.Context) ([]client.BlockDevice, error) { return o.Service.Host.BlockDevices(ctx) }),
		images: newShared(o, func(ctx context.Context) (imagesOut, error) {
			rows, notices, err := o.Service.Images.List(ctx)
			return imagesOut{notices, orEmpty(rows)}, err
		}),
	}
}

// shared is an observation that readers share, so no reader may modify it. A
// reader may get an observation that is a little old. A caller with the right to
// change the host gets a new one, which shows the effect of the caller's changes.
type shared[T any] struct {
	log  *slog.Logger
	now  func() time.Time
	read func(context.Context) (T, error)

	mu   sync.Mutex
	last *look[T]
}

// look is an observation. Its other fields are valid once done is closed.
type look[T any] struct {
	done  chan struct{}
	ended time.Time
	value T
	err   error
}

func newShared[T any](o Options, read func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{log: o.Logger, now: o.Clock, read: read}
}

// get observes the host. Readers share an observation that is in progress or
// ended at most lookAge ago. A shared observation goes on if its first caller
// disconnects.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	if callerFrom(ctx).role != roleReader {
		return s.read(ctx)
	}
	l := s.recent(ctx)
	select {
	case <-l.done:
		return l.value, l.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (s *shared[T]) recent(ctx context.Context) *look[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		select {
		case <-s.last.done:
			if age := s.now().Sub(s.last.ended); age >= 0 && age <= lookAge {
				return s.last
			}
		default:
			return s.last
		}
	}
	l := &look[T]{done: make(chan struct{})}
	s.last = l
	go func() {
		defer close(l.done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slow)
		defer cancel()
		defer func() { l.ended = s.now() }()
		l.value, l.err = fault.Recovering(s.log, "a look at the host", func() (T, error) { return s.read(ctx) })
	}()
	return l
}
