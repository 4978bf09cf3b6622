package lxdtest

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is the proxy's treatment of a request that matches a Rule.
type Fault int

// The faults that a Rule can cause.
const (
	// Refuse answers 500 without passing the request on.
	Refuse Fault = iota + 1
	// Cut closes the connection without passing the request on.
	Cut
	// LoseReply passes the request on, waits for the whole answer and closes
	// the connection without passing the answer on.
	LoseReply
	// Truncate passes the request on, sends half of the answer and closes the
	// connection.
	Truncate
	// Garbage passes the request on and answers with text that is not JSON.
	Garbage
	// Delay waits for Rule.Wait and then passes the request on.
	Delay
)

// Rule selects the requests that suffer a fault.
type Rule struct {
	// Method is a request method; "" matches every method. Path is a part of
	// the request's path and query; "" matches every path.
	Method, Path string
	Fault        Fault
	// Times is how often the rule applies; 0 means once, and a negative number
	// means always.
	Times int
	Wait  time.Duration
}

// Proxy stands in front of an LXD socket, counts requests and injects faults.
type Proxy struct {
	// Socket is the path of the proxy's socket, to connect to instead of LXD's.
	Socket string

	mu      sync.Mutex
	rules   []*Rule
	counts  map[string]int
	streams map[net.Conn]bool
	watch   func(method, path string)
}

// NewProxy starts a proxy in front of the socket target, which need not always
// exist. The proxy ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "lxdproxy") //nolint:usetesting // a socket path must be short
	check(t, "make the proxy's directory", err)
	p := &Proxy{Socket: filepath.Join(dir, "proxy.socket"), counts: map[string]int{}, streams: map[net.Conn]bool{}}
	listener, err := net.Listen("unix", p.Socket)
	check(t, "listen for the proxy", err)
	transport := &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", target)
		},
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "lxd"
			r.Out.Host = r.In.Host
		},
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: spoil,
		ErrorLog:       log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler)
		},
	}
	server := &http.Server{
		ReadHeaderTimeout: waitLimit,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(forward, w, r) }),
		ConnState:         p.track,
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		p.CutStreams()
		_ = os.RemoveAll(dir)
	})
	return p
}

type faultKey struct{}

func (p *Proxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	path := r.URL.RequestURI()
	p.mu.Lock()
	p.counts[r.Method+" "+path]++
	if p.watch != nil {
		p.watch(r.Method, path)
	}
	var rule *Rule
	for _, candidate := range p.rules {
		if candidate.Times != 0 && (candidate.Method == "" || candidate.Method == r.Method) && strings.Contains(path, candidate.Path) {
			rule = candidate
			if rule.Times > 0 {
				rule.Times--
			}
			break
		}
	}
	p.mu.Unlock()
	if rule != nil {
		switch rule.Fault {
		case Refuse:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"type": "error", "error": "refused by the proxy", "error_code": 500}`)
			return
		case Cut:
			panic(http.ErrAbortHandler)
		case Delay:
			select {
			case <-time.After(rule.Wait):
			case <-r.Context().Done():
				return
			}
		case LoseReply, Truncate, Garbage:
			r = r.WithContext(context.WithValue(r.Context(), faultKey{}, rule.Fault))
		}
	}
	forward.ServeHTTP(w, r)
}

// spoil applies the faults that change LXD's answer.
func spoil(resp *http.Response) error {
	fault, _ := resp.Request.Context().Value(faultKey{}).(Fault)
	if fault == 0 {
		return nil
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	switch fault {
	case LoseReply:
		return errors.New("the reply is lost") // ErrorHandler closes the connection
	case Truncate:
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(content[:len(content)/2])), broken{}))
	default:
		resp.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", len(content))))
	}
	return nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Watch makes the proxy call f for every request that arrives, with the path and
// query of its URL. Watch(nil) ends this. f must not call the proxy.
func (p *Proxy) Watch(f func(method, path string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// Add adds a rule. To each request, only the first matching rule applies.
func (p *Proxy) Add(r Rule) {
	if r.Times == 0 {
		r.Times = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &r)
}

// Heal removes all rules.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// Pending returns the number of faults that the rules have not caused yet.
func (p *Proxy) Pending() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		n += max(0, r.Times)
	}
	return n
}

// Count returns the number of requests with that method whose path begins with
// prefix. If method is "", requests of every method count.
func (p *Proxy) Count(method, prefix string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for key, count := range p.counts {
		m, path, _ := strings.Cut(key, " ")
		if (method == "" || m == method) && strings.HasPrefix(path, prefix) {
			n += count
		}
	}
	return n
}

// Mutations returns the number of requests that may change something.
func (p *Proxy) Mutations() int { return p.Count("", "/") - p.Count(http.MethodGet, "/") }

// Counts returns the number of requests for each "METHOD /path?query".
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Forget sets all counters to zero.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

func (p *Proxy) track(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateHijacked:
		p.streams[conn] = true
	case http.StateClosed:
		delete(p.streams, conn)
	}
}

// CutStreams closes the open event streams and other websockets.
func (p *Proxy) CutStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.streams {
		_ = conn.Close()
		delete(p.streams, conn)
	}
}
