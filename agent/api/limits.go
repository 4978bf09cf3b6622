package api

import (
	"net/http"
	"sync"
	"time"
)

// The limits of the API that apply to all callers. maxApplyBody leaves room for
// the rest of a request with MaxDocuments.
const (
	maxHeader    = 8 << 10
	maxBody      = 256 << 10
	maxApplyBody = 17 << 20

	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	answerTimeout = 30 * time.Second
)

// The limits of a reader's plan: enough for a host's whole declaration.
const (
	maxReaderBody      = 1 << 20
	maxReaderDocuments = 256
	maxReaderObjects   = 4000
	maxReaderNetworks  = 500
)

// shareRates is the factor between the rate of a uid and the rate of its share
// as a whole.
const shareRates = 10

// rates holds one token bucket per uid and one per share. Full buckets are
// dropped, so that the map only holds active users.
type rates struct {
	mu      sync.Mutex
	now     func() time.Time
	buckets map[rated]*bucket
	swept   time.Time
}

// rated identifies the bucket of a uid, or of a whole share.
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

// allow takes a token from the uid's bucket and from its share's bucket.
func (r *rates) allow(c caller) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sweep(now)
	s := c.share()
	p := parts[s]
	own := r.bucket(rated{holder: holder{s, c.UID}}, p.rate, p.burst, now)
	if own.tokens < 1 { // leaves the share's tokens to the others
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

// bucket returns the filled bucket.
func (r *rates) bucket(of rated, rate, burst float64, now time.Time) *bucket {
	b := r.buckets[of]
	if b == nil {
		b = &bucket{tokens: burst, rate: rate, burst: burst, at: now}
		r.buckets[of] = b
	}
	b.fill(now)
	return b
}

// fill adds the tokens since the last call; if the clock went back it adds
// none.
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
	// ReadTimeout and WriteTimeout would cut streams: protect sets both
	// deadlines per request instead.
	return &http.Server{
		Handler:           h,
		MaxHeaderBytes:    maxHeader - 4096, // net/http grants 4 KiB of slop
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
	}
}
