package lxd

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// The error for an LXD that is stopped, or about to be, is short and says how
// to start it; no text of a library's error reaches the user.
func TestStoppedLXDIsReportedPlainly(t *testing.T) {
	const want = "LXD does not answer; start it: systemctl start lxd"
	stopping := newFakeLXD(t)
	stopping.mux.HandleFunc("/1.0/instances", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusInternalServerError, "Failed to begin transaction: sql: database is closed")
	})
	for what, d := range map[string]*Driver{
		"stopped":  New(Options{Socket: filepath.Join(t.TempDir(), "socket"), Namespace: "hostler"}),
		"stopping": stopping.driver(nil),
	} {
		_, err := d.List(t.Context(), false)
		if err == nil || err.Error() != want || !fault.Is(err, fault.Transient) || containerbroker.Unanswered(err) != "LXD does not answer" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An LXD that hangs is reported soon. An LXD that is slow to list is waited for,
// even if it leaves the first question whether it lives without an answer.
func TestHangingLXDIsReportedSoon(t *testing.T) {
	for what, c := range map[string]struct {
		ignored int64 // questions that are not answered
		hangs   bool
	}{"hangs": {2, true}, "is slow": {0, false}, "answers late": {1, false}} {
		f := newFakeLXD(t)
		var asked atomic.Int64
		release, answered := make(chan struct{}), make(chan struct{})
		f.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) <= c.ignored {
				<-release
				return
			}
			reply(w, "sync", []string{"/1.0"})
			close(answered)
		})
		f.mux.HandleFunc("/1.0/instances", func(w http.ResponseWriter, _ *http.Request) {
			select {
			case <-release:
			case <-answered:
			}
			reply(w, "sync", []any{})
		})
		d := f.driver(func(o *Options) { o.ListTimeout = 100 * time.Millisecond })
		began := time.Now()
		_, err := d.List(t.Context(), true)
		close(release)
		if (containerbroker.Unanswered(err) != "") != c.hangs || (err != nil) != c.hangs || time.Since(began) > 5*time.Second {
			t.Errorf("an LXD that %s: %v after %v", what, err, time.Since(began))
		}
		if n := asked.Load(); n != min(c.ignored+1, 2) {
			t.Errorf("an LXD that %s: asked %d times", what, n)
		}
	}
}
