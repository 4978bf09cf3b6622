package api

import (
	"net/http"
	"sync"
	"time"
)

// These limits of the API apply to all callers. Sizes are in bytes.
// maxApplyBody exceeds client.MaxDocuments, to leave room for the rest of a
// request.
const (
	maxHeader    = 8 << 10
	maxBody      = 256 << 10
	maxApplyBody = 17 << 20

	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	answerTimeout = 30 * time.Second
)

// These are the limits of a reader's plan. A host's whole declaration fits.
const (
	maxReaderBody      = 1 << 20
	maxReaderDocuments = 256
	maxReaderObjects   = 4000
	maxReaderNetworks  = 500
)

// shareRates is the rate of a share as a whole divided by the rate of a uid.
const shareRates = 10

// rates holds one token bucket per uid and one per share. sweep() drops full
// buckets, so that the map only holds active users.
type rates struct {
	mu      sync.Mutex
	now     func() time.Time
	buckets map[rated]*bucket
	swept   time.Time
}

// rated identifies the bucket of a uid, or of a whole share if all is true.
type rated struct {
	holder
	all bool
}

type bucket struct {
	tokens, rate, burst float64
	at                  time.Time
}

// allow takes a token from the bucket of the caller's uid and one from the
// bucket of its share. It returns false if either has none.
func (r *rates) allow(c caller) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sweep(now)
	s := c.share()
	p := parts[s]
	own := r.bucket(rated{holder: holder{s, c.UID}}, p.rate, p.burst, now)
	if own.tokens < 1 { // leave the share's tokens to the other uids
		return false
	}
	all := r.bucket(rated{holder: holder{share: s}, all: true}, shareRates*p.rate, shareRates*p.burst, now)
	if all.tokens < 1 {
		return false
	}
	own.tokens--
	all.tokens--
	return true
}

// bucket returns a bucket with its tokens up to now. It creates the bucket if
// it does not exist.
func (r *rates) bucket(of rated, rate, burst float64, now time.Time) *bucket {
	b := r.buckets[of]
	if b == nil {
		b = &bucket{tokens: burst, rate: rate, burst: burst, at: now}
		r.buckets[of] = b
	}
	b.fill(now)
	return b
}

// fill adds the tokens for the time since the last call. If the clock went
// back, it adds none.
func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.at).Seconds(); d > 0 {
		b.tokens = min(b.burst, b.tokens+d*b.rate)
	}
	b.at = now
}

func (r *rates) sweep(now time.Time) {
	if now.Sub(r.swept) < time.Minute {
		return
	}
	r.swept = now
	for uid, b := range r.buckets {
		if b.fill(now); b.tokens >= b.burst {
			delete(r.buckets, uid)
		}
	}
}

func httpServer(h http.Handler) *http.Server {
	// Do not set ReadTimeout and WriteTimeout, because they would end streams.
	// protect() sets both deadlines for each request.
	return &http.Server{
		Handler:           h,
		MaxHeaderBytes:    maxHeader - 4096, // net/http adds 4 KiB
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
	}
}
