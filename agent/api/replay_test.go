package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// keyed makes a change with a given key.
func (b *bench) keyed(p peerCredentials, key, target, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	req.Host = "hostler"
	if key != "" {
		req.Header.Set(client.KeyHeader, key)
	}
	return b.ask(p, req, "application/json")
}

func restarts(t *testing.T, b *bench) int {
	t.Helper()
	o, err := b.store.Get(t.Context(), state.ID{Kind: spec.KindMachine, Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	var record spec.MachineRecord
	if err := json.Unmarshal(o.Spec, &record); err != nil {
		t.Fatal(err)
	}
	return record.RestartRequest
}

// A change is made once per key, however often it is sent, with the same answer
// each time.
func TestChangesAreMadeOncePerKey(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := newBench(t, func(o *Options) { o.Clock = func() time.Time { return now } })
	b.machine("one", state.Alive, lxdMachine("web"), running("one"))
	root, other := peer(0, 0), peer(2000, adminGID)
	const path, body = "/v1/machines/one/power", `{"action":"restart"}`
	first := b.keyed(root, "abcdefgh-1", path, body)
	again := b.keyed(root, "abcdefgh-1", path, body)
	if first.Code != 204 || again.Code != 204 || first.Body.String() != again.Body.String() || restarts(t, b) != 1 {
		t.Fatalf("%d %s, then %d %s, %d restarts", first.Code, first.Body, again.Code, again.Body, restarts(t, b))
	}
	if log := b.log.String(); !strings.Contains(log, "change=abcdefgh-1") {
		t.Errorf("the change is not named in the log:\n%s", log)
	}
	if w := b.keyed(other, "abcdefgh-1", path, body); w.Code != 204 || restarts(t, b) != 2 {
		t.Errorf("another user's key: %d, %d restarts", w.Code, restarts(t, b))
	}
	if w := b.keyed(root, "abcdefgh-1", path, `{"action":"stop"}`); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "another change") {
		t.Errorf("the same key for another change: %d %s", w.Code, w.Body)
	}
	for _, key := range []string{"", "short", "with space", strings.Repeat("x", 65), "ümläutümläut"} {
		if w := b.keyed(root, key, path, body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), client.KeyHeader) {
			t.Errorf("key %q: %d %s", key, w.Code, w.Body)
		}
	}
	if n := restarts(t, b); n != 2 {
		t.Errorf("%d restarts", n)
	}
	now = now.Add(replayTime + time.Second)
	if w := b.keyed(root, "abcdefgh-1", path, body); w.Code != 204 || restarts(t, b) != 3 {
		t.Errorf("after the time: %d, %d restarts", w.Code, restarts(t, b))
	}
}

// The stored answers are bounded, and the oldest is dropped first.
func TestReplaysAreBounded(t *testing.T) {
	p := newReplays(time.Now)
	for i := range 3 * maxReplays {
		p.enter(replayKey{key: fmt.Sprint(i)}, [32]byte{})
	}
	if len(p.known) != maxReplays || len(p.order) != maxReplays || p.known[replayKey{key: fmt.Sprint(3*maxReplays - 1)}] == nil {
		t.Errorf("%d known, %d in order", len(p.known), len(p.order))
	}
}

// A failure that another attempt may avoid is not stored, and a waiting request
// makes the change again.
func TestFailuresAreNotReplayed(t *testing.T) {
	p := newReplays(time.Now)
	made := 0
	status := http.StatusServiceUnavailable
	serve := func() int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/x", nil)
		r.Header.Set(client.KeyHeader, "abcdefgh")
		p.once(w, r, 0, nil, func(w http.ResponseWriter, _ *http.Request) { made++; w.WriteHeader(status) })
		return w.Code
	}
	if serve(); serve() != status || made != 2 {
		t.Errorf("made %d times", made)
	}
	status = http.StatusNoContent
	if serve(); serve() != status || made != 3 {
		t.Errorf("made %d times", made)
	}
}

// Requests with a Host header other than the agent's are refused.
func TestForeignHostsAreRefused(t *testing.T) {
	b := newBench(t)
	for host, want := range map[string]int{"hostler": 200, "localhost": 200, "evil.example": http.StatusMisdirectedRequest, "hostler.evil": http.StatusMisdirectedRequest} {
		req := httptest.NewRequest(http.MethodGet, "/v1/version", nil)
		req.Host = host
		if w := b.ask(peer(0, 0), req, ""); w.Code != want {
			t.Errorf("host %s: %d %s", host, w.Code, w.Body)
		}
	}
}
