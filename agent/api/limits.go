package api

import (
	"net/http"
	"sync"
	"time"
)

// The bounds of the API that are the same for all.
//
// MaxDocuments bounds the JSON of the documents of one apply, in bytes: what
// else is in the request has room besides.
const (
	MaxDocuments = 16 << 20

	maxHeader    = 8 << 10
	maxBody      = 256 << 10
	maxApplyBody = 17 << 20

	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	answerTimeout = 30 * time.Second
)

// The bounds of what a reader plans: a host's whole declaration, and no more.
const (
	maxReaderBody      = 1 << 20
	maxReaderDocuments = 256
	maxReaderObjects   = 4000
	maxReaderNetworks  = 500
)

// shareRates is how many times a uid's rate all uids of a share have together.
const shareRates = 10

// rates holds one token bucket per uid and one per share. A bucket that is full
// again is forgotten, so that the map stays as small as the number of active
// users.
type rates struct {
	mu      sync.Mutex
	now     func() time.Time
	buckets map[rated]*bucket
	swept   time.Time
}

// rated is a uid, or all of a share.
type rated struct {
	holder
	all bool
}

type bucket struct {
	tokens, rate, burst float64
	at                  time.Time
}

func newRates(now func() time.Time) *rates {
	return &rates{now: now, buckets: map[rated]*bucket{}}
}

// allow takes one token of the uid's bucket and one of its share's.
func (r *rates) allow(c caller) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sweep(now)
	s := c.share()
	p := parts[s]
	own := r.bucket(rated{holder: holder{s, c.UID}}, p.rate, p.burst, now)
	if own.tokens < 1 { // takes nothing of the others'
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

// bucket is the bucket, filled.
func (r *rates) bucket(of rated, rate, burst float64, now time.Time) *bucket {
	b := r.buckets[of]
	if b == nil {
		b = &bucket{tokens: burst, rate: rate, burst: burst, at: now}
		r.buckets[of] = b
	}
	b.fill(now)
	return b
}

// fill adds what came since; a clock that went back adds nothing.
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
	// ReadTimeout and WriteTimeout would cut streams: the guard sets both
	// deadlines per request instead.
	return &http.Server{
		Handler:           h,
		MaxHeaderBytes:    maxHeader - 4096, // net/http grants 4 KiB of slop
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
	}
}
