package api

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"net/http"
	"regexp"
	"sync"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/internal/fault"
)

var keyForm = regexp.MustCompile(`^[A-Za-z0-9_-]{8,64}$`)

// These are the limits of the stored answers. If an answer is larger or older,
// a repeated request makes the change again. This matters only for a restart,
// because the other changes are idempotent.
const (
	maxReplays     = 256
	maxReplayBytes = 64 << 10
	replayTime     = 10 * time.Minute
)

// replays stores the answers to changes in memory, so an agent's stop loses the
// answers.
type replays struct {
	now func() time.Time

	mu    sync.Mutex
	known map[replayKey]*replay
	order []replayKey // oldest first
}

// replayKey is the key of a change with the user's id, so that no user can read
// another user's answers.
type replayKey struct {
	uid uint32
	key string
}

// replay is a change. It is in progress until done is closed. answer is nil if
// the change ended without an answer that can be repeated.
type replay struct {
	request [sha256.Size]byte
	at      time.Time
	done    chan struct{}
	answer  *recorded
}

// recorded is a complete response.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newReplays(now func() time.Time) *replays {
	return &replays{now: now, known: map[replayKey]*replay{}}
}

// once makes a change once per key and gives all requests with this key the
// same answer.
func (p *replays) once(w http.ResponseWriter, r *http.Request, uid uint32, body []byte, next http.HandlerFunc) {
	key := r.Header.Get(client.KeyHeader)
	if !keyForm.MatchString(key) {
		raw.WriteProblem(w, raw.NewProblem(http.StatusBadRequest, fault.Invalid,
			"a change needs a header "+client.KeyHeader+" of 8 to 64 letters, digits, - and _: a new key for each change, the same key when it is sent again"))
		return
	}
	id := replayKey{uid, key}
	sum := sha256.Sum256(append([]byte(r.Method+" "+r.URL.RequestURI()+"\n"), body...))
	for {
		known, isNew := p.enter(id, sum)
		if isNew {
			p.make(w, r, id, known, next)
			return
		}
		if known.request != sum {
			raw.WriteProblem(w, raw.NewProblem(http.StatusUnprocessableEntity, fault.Invalid, "this "+client.KeyHeader+" was used for another change"))
			return
		}
		select {
		case <-known.done:
		case <-r.Context().Done():
			raw.WriteProblem(w, raw.NewProblem(http.StatusConflict, fault.Transient, "this very change is still being made"))
			return
		}
		if known.answer != nil {
			known.answer.write(w)
			return
		}
	}
}

// enter returns the replay of the key. isNew is true if enter has created the
// replay. The caller must then make the change.
func (p *replays) enter(id replayKey, sum [sha256.Size]byte) (known *replay, isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.order) > 0 && (len(p.order) >= maxReplays || p.now().Sub(p.known[p.order[0]].at) > replayTime) {
		p.forget(p.order[0])
	}
	if known := p.known[id]; known != nil {
		return known, false
	}
	known = &replay{request: sum, at: p.now(), done: make(chan struct{})}
	p.known[id] = known
	p.order = append(p.order, id)
	return known, true
}

// forget removes a key. The caller holds p.mu.
func (p *replays) forget(id replayKey) {
	delete(p.known, id)
	for i, other := range p.order {
		if other == id {
			p.order = append(p.order[:i:i], p.order[i+1:]...)
			return
		}
	}
}

// make makes the change and stores its answer. It does not store an answer that
// is too large, or a failure after which another attempt may succeed.
func (p *replays) make(w http.ResponseWriter, r *http.Request, id replayKey, change *replay, next http.HandlerFunc) {
	a := &recorded{header: http.Header{}}
	defer close(change.done)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.status == 0 || a.status >= 500 || a.status == http.StatusTooManyRequests || a.body.Len() > maxReplayBytes {
			if p.known[id] == change {
				p.forget(id)
			}
			return
		}
		change.answer = a
	}()
	next(a, r)
	a.write(w)
}

// Header implements http.ResponseWriter.
func (a *recorded) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorded) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *recorded) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *recorded) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.Write(a.body.Bytes())
}
