package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of the API. Connections and streams are per uid, so that nobody
// locks out others. Root has what a hundred commands at once need, and leaves
// room for others; root and the workers' users get a rate that only a runaway
// loop reaches.
//
// MaxDocuments bounds the JSON of the documents of one apply, in bytes: what
// else is in the request has room besides.
const (
	MaxDocuments = 16 << 20

	maxHeader        = 8 << 10
	maxBody          = 256 << 10
	maxApplyBody     = 17 << 20
	maxReaderBody    = 1 << 20
	maxConns         = 256
	maxConnsPerUID   = 64
	maxConnsOfRoot   = 160
	maxStreamsPerUID = 16

	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	answerTimeout = 30 * time.Second

	userRate, userBurst   = 20, 40
	agentRate, agentBurst = 1000, 2000
)

// counter counts things in use per uid and in all.
type counter struct {
	mu                sync.Mutex
	uids              map[uint32]int
	all               int
	perUID, root, max int
}

func newCounter(perUID, root, limit int) *counter {
	return &counter{uids: map[uint32]int{}, perUID: perUID, root: root, max: limit}
}

// take returns false when the bound is reached.
func (c *counter) take(uid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	bound := c.perUID
	if uid == 0 {
		bound = c.root
	}
	if c.uids[uid] >= bound || c.all >= c.max {
		return false
	}
	c.uids[uid]++
	c.all++
	return true
}

func (c *counter) give(uid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.uids[uid]--; c.uids[uid] == 0 {
		delete(c.uids, uid)
	}
}

// rates holds one token bucket per uid. A bucket that is full again is
// forgotten, so that the map stays as small as the number of active users.
type rates struct {
	mu      sync.Mutex
	now     func() time.Time
	buckets map[uint32]*bucket
	swept   time.Time
}

type bucket struct {
	tokens, rate, burst float64
	at                  time.Time
}

func newRates(now func() time.Time) *rates {
	return &rates{now: now, buckets: map[uint32]*bucket{}}
}

// allow takes one token of the uid's bucket.
func (r *rates) allow(uid uint32, rate, burst float64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sweep(now)
	b := r.buckets[uid]
	if b == nil {
		b = &bucket{tokens: burst, rate: rate, burst: burst, at: now}
		r.buckets[uid] = b
	}
	b.fill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
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

// boundListener lets no more than the allowed connections in and ties each to
// its peer.
type boundListener struct {
	net.Listener
	conns *counter
	// refused is told of connections that were turned away.
	refused func(reason string, err error)
}

// peerConn is a connection whose peer is known.
type peerConn struct {
	net.Conn
	peer Peer
	once sync.Once
	give func()
}

func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.give)
	return err
}

// busyAnswer is sent without reading the request, and fits the socket's
// buffer, so that it cannot block.
const busyAnswer = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + problemType + "\r\nConnection: close\r\nContent-Length: 132\r\n\r\n" +
	`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"too many connections to the agent",` + `"kind":"transient"}  ` + "\n"

// Accept returns the next connection within the bounds.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			// Only unix sockets tell who is there.
			l.refused("not a unix socket", nil)
			_ = c.Close()
			continue
		}
		p, err := peerOf(uc)
		if err != nil {
			l.refused("unknown peer", err)
			_ = c.Close()
			continue
		}
		if !l.conns.take(p.UID) {
			l.refused("too many connections", nil)
			_, _ = c.Write([]byte(busyAnswer))
			_ = c.Close()
			continue
		}
		return &peerConn{Conn: c, peer: p, give: func() { l.conns.give(p.UID) }}, nil
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
