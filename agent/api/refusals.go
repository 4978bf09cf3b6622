package api

import (
	"log/slog"
	"sync"
	"time"
)

// manyRefused bounds the uids that get a separate log line per minute, because
// a caller with subordinate uids has 65,536 of them.
const manyRefused = 16

// refusals logs rejected connections. It logs the first connection of a uid at
// once, then for each minute a line per uid with the number of connections.
type refusals struct {
	log   *slog.Logger
	after func(time.Duration, func())

	mu     sync.Mutex
	minute map[uint32]*turned
	others int
	open   bool // a minute has begun
}

type turned struct {
	reason string
	more   int
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, after: func(d time.Duration, f func()) { time.AfterFunc(d, f) }, minute: map[uint32]*turned{}}
}

func (r *refusals) note(p peerCredentials, reason string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		r.open = true
		r.after(time.Minute, r.end)
	}
	switch known := r.minute[p.UID]; {
	case known != nil:
		known.reason = reason
		known.more++
	case len(r.minute) >= manyRefused:
		r.others++
	default:
		r.minute[p.UID] = &turned{reason: reason}
		r.log.Warn("A connection was turned away.", "reason", reason, "uid", p.UID, "pid", p.PID, "exe", p.Exe, "error", err)
	}
}

// end logs the counts of the minute. If a uid had further connections, its next
// line comes a minute later.
func (r *refusals) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	going := map[uint32]*turned{}
	for uid, one := range r.minute {
		if one.more > 0 {
			r.log.Warn("Connections were turned away.", "reason", one.reason, "uid", uid, "count", one.more, "seconds", 60)
			going[uid] = &turned{reason: one.reason}
		}
	}
	if r.others > 0 {
		r.log.Warn("Connections of other users were turned away.", "count", r.others, "seconds", 60)
	}
	r.minute, r.others, r.open = going, 0, len(going) > 0
	if r.open {
		r.after(time.Minute, r.end)
	}
}
