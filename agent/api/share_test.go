package api

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
)

// However many uids a reader has, its share is bounded and the other shares
// stay the same.
// Attack: API
func TestAShareIsBoundedForAllItsUsers(t *testing.T) {
	for what, c := range map[string]*counter{
		"connections": newCounter(func(p part) bound { return p.conns }),
		"streams":     newCounter(func(p part) bound { return p.streams }),
		"plans":       newCounter(func(p part) bound { return p.plans }),
	} {
		reader := share(roleReader)
		want, took := c.of(parts[reader]), map[uint32]int{}
		for i := range 10 * want.all {
			uid := uint32(100000 + i/(2*want.perUID))
			if taken, _ := c.take(reader, uid); taken {
				took[uid]++
			}
		}
		all := 0
		for uid, n := range took {
			if all += n; n > want.perUID {
				t.Errorf("%s: uid %d took %d, want %d", what, uid, n, want.perUID)
			}
		}
		if all != want.all {
			t.Errorf("%s: readers took %d, want %d", what, all, want.all)
		}
		for _, other := range []share{shareRoot, share(roleAdmin)} {
			for i := range c.of(parts[other]).perUID {
				if taken, _ := c.take(other, 0); !taken {
					t.Errorf("%s: %s took only %d", what, other, i)
				}
			}
		}
		c.give(reader, 100000)
		if taken, _ := c.take(reader, 100000); !taken {
			t.Errorf("%s: what was given back cannot be taken", what)
		}
	}
}

// open makes the socket accessible to all users.
func (b *bench) open(t *testing.T) {
	t.Helper()
	for _, path := range []string{filepath.Dir(filepath.Dir(b.socket)), filepath.Dir(b.socket), b.socket} {
		if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // anybody may knock here
			t.Fatal(err)
		}
	}
}

// asked returns the status of an answer on an open connection; 0: it was
// closed.
func asked(conn net.Conn) int {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, "GET /v1/version HTTP/1.1\r\nHost: hostler\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// idleReaders counts the readers' idle connections that had a request.
func (b *bench) idleReaders() (n int) {
	b.bound.mu.Lock()
	defer b.bound.mu.Unlock()
	if all := b.bound.idle[share(roleReader)]; all != nil {
		n = all.Len()
	}
	return n
}

// Attack: API
func TestTheOldestIdleReaderGoesFirst(t *testing.T) {
	b := newBench(t)
	b.listen(t)
	b.open(t)
	bounds := parts[share(roleReader)].conns
	var conns []net.Conn
	for i := range bounds.all { // of several uids, like an account with subordinate uids
		conn := dialAs(t, b.socket, uint32(70000+i/bounds.perUID), readerGID)
		if got := asked(conn); got != 200 {
			t.Fatalf("reader %d: %d", i, got)
		}
		eventually(t, "the connection is idle", func() bool { return b.idleReaders() == i+1 })
		conns = append(conns, conn)
	}
	if got := asked(dialAs(t, b.socket, 71000, readerGID)); got != 200 {
		t.Errorf("one reader more: %d", got)
	}
	if got := asked(conns[0]); got != 0 {
		t.Errorf("the oldest idle connection stays: %d", got)
	}
	// A uid at its own limit loses its own oldest connection.
	if got := asked(dialAs(t, b.socket, 70001, readerGID)); got != 200 {
		t.Errorf("one of the second uid more: %d", got)
	}
	if got := asked(conns[bounds.perUID]); got != 0 {
		t.Errorf("the oldest of the second uid stays: %d", got)
	}
	if got := asked(conns[1]); got != 200 {
		t.Errorf("another uid's connection: %d", got)
	}
	for who, conn := range map[string]net.Conn{
		"root": dialAs(t, b.socket, 0, 0), "an admin": dialAs(t, b.socket, 70000, adminGID), "a stranger": dialAs(t, b.socket, otherUID, 100),
	} {
		if got := asked(conn); got == 503 || got == 0 {
			t.Errorf("%s beside all readers: %d", who, got)
		}
	}
	if taken, _ := b.conns.take(share(roleWorker), lxdUID); !taken {
		t.Error("a worker has no room")
	}
	b.conns.give(share(roleWorker), lxdUID)
}

// Attack: API
func TestRefusedConnectionsAreLoggedOnceAMinute(t *testing.T) {
	var log strings.Builder
	var minute func()
	r := newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	r.after = func(d time.Duration, f func()) {
		if minute != nil || d != time.Minute {
			t.Errorf("another timer of %s", d)
		}
		minute = f
	}
	end := func() {
		f := minute
		minute = nil
		f()
	}
	for range 5000 {
		r.note(peer(2000, 100), "too many connections", nil)
		r.note(peer(2001, 100), "too many connections", nil)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines at first, want one for each uid:\n%s", n, log.String())
	}
	log.Reset()
	end()
	if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, "count=4999") != 2 {
		t.Errorf("after a minute:\n%s", text)
	}
	log.Reset()
	for i := range 65536 {
		r.note(peer(uint32(100000+i), 100), "too many connections", nil)
	}
	end()
	if n := strings.Count(log.String(), "\n"); n > manyRefused+1 {
		t.Errorf("65,536 uids wrote %d lines", n)
	}
	if minute != nil {
		t.Error("a minute without any refusal is waited for")
	}
}

// Attack: API
func TestAReaderPlansOneAtATime(t *testing.T) {
	b := newBench(t)
	body, err := json.Marshal(client.ApplyRequest{Documents: []client.Document{{Name: "one", Content: "version: 1\nmachines: {web: {type: lxd, image: debian/12}}\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(p peerCredentials) (int, string) {
		w := b.as(p, "POST", "/v1/plan", "application/json", string(body))
		return w.Code, w.Header().Get("Retry-After")
	}
	reader := share(roleReader)
	hold := func(s share, uid uint32) {
		t.Helper()
		if taken, _ := b.plans.take(s, uid); !taken {
			t.Fatalf("%s %d cannot plan", s, uid)
		}
	}
	hold(reader, 2000)
	if code, again := ask(peer(2000, readerGID)); code != http.StatusTooManyRequests || again != "1" {
		t.Errorf("a second plan of one uid: %d, again after %q", code, again)
	}
	if code, _ := ask(peer(2001, readerGID)); code != 200 {
		t.Errorf("a plan of another uid: %d", code)
	}
	hold(reader, 2001)
	if code, again := ask(peer(2002, readerGID)); code != http.StatusTooManyRequests || again != "1" {
		t.Errorf("a third plan of readers: %d, again after %q", code, again)
	}
	for _, p := range []peerCredentials{peer(0, 0), peer(2003, adminGID)} {
		if code, _ := ask(p); code != 200 {
			t.Errorf("a plan of uid %d beside the readers': %d", p.UID, code)
		}
	}
	b.plans.give(reader, 2000)
	if code, _ := ask(peer(2000, readerGID)); code != 200 {
		t.Errorf("a plan after the first one: %d", code)
	}
	// Plans of root wait for each other.
	hold(shareRoot, 0)
	hold(shareRoot, 0)
	got := make(chan int)
	go func() {
		code, _ := ask(peer(0, 0))
		got <- code
	}()
	b.plans.give(shareRoot, 0)
	if code := <-got; code != 200 {
		t.Errorf("a plan of root that waited: %d", code)
	}
}

// A page holds 10,000 events. Readers who ask for pages wait for each other, so
// that few pages are in memory at the same time.
// Attack: API
func TestReadersGetPagesOfEventsOneAfterTheOther(t *testing.T) {
	b := newBench(t)
	ask := func(p peerCredentials) int { return b.as(p, "GET", "/v1/events?limit=10000", "", "").Code }
	if taken, _ := b.plans.take(share(roleReader), 2000); !taken {
		t.Fatal("a reader gets no page")
	}
	if code := ask(peer(2000, readerGID)); code != http.StatusTooManyRequests {
		t.Errorf("a second page of one uid: %d", code)
	}
	if code := ask(peer(0, 0)); code != 200 {
		t.Errorf("a page of root beside the reader's: %d", code)
	}
	got := make(chan int)
	go func() { got <- ask(peer(2000, readerGID)) }()
	b.plans.give(share(roleReader), 2000)
	if code := <-got; code != 200 {
		t.Errorf("a page that waited: %d", code)
	}
}

// Attack: API
func TestAReadersPlanHasAnEnd(t *testing.T) {
	b := newBench(t)
	for what, docs := range map[string][]client.Document{
		"257 documents": manyDocuments(maxReaderDocuments+1, 1, "machines", "m%d: {type: lxd, image: a/1}"),
		"501 networks":  manyDocuments(maxReaderNetworks+1, 500, "networks", "n%d: {bridge: b%d}"),
		"4001 objects":  manyDocuments(maxReaderObjects+1, 2000, "volumes", "v%d: {provider: loop, size: 1MiB}"),
	} {
		c := withCaller(t.Context(), caller{peerCredentials: peer(2000, readerGID), role: roleReader})
		_, err := b.plan(c, &in[client.ApplyRequest]{Body: client.ApplyRequest{Documents: docs}})
		if err == nil || !strings.Contains(err.Error(), "cannot plan "+what) {
			t.Errorf("%s of a reader: %v", what, err)
		}
		c = withCaller(t.Context(), caller{peerCredentials: peer(0, 0), role: roleAdmin})
		if _, err := b.plan(c, &in[client.ApplyRequest]{Body: client.ApplyRequest{Documents: docs}}); err != nil {
			t.Errorf("%s of root: %v", what, err)
		}
	}
}
