package lxd

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// The error for an LXD that is stopped, or about to be, is short and says how
// to start it; no text of a library's error reaches the user.
func TestStoppedLXDIsToldInPlainWords(t *testing.T) {
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

// An LXD that hangs is reported soon, and an LXD that is slow to list is waited
// for.
func TestHangingLXDIsToldSoon(t *testing.T) {
	for what, hangs := range map[string]bool{"hangs": true, "is slow": false} {
		f := newFakeLXD(t)
		release, asked := make(chan struct{}), make(chan struct{})
		f.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
			close(asked)
			if hangs {
				<-release
			}
			reply(w, "sync", []string{"/1.0"})
		})
		f.mux.HandleFunc("/1.0/instances", func(w http.ResponseWriter, _ *http.Request) {
			if hangs {
				<-release
			}
			<-asked
			reply(w, "sync", []any{})
		})
		d := f.driver(func(o *Options) { o.ListPatience = 100 * time.Millisecond })
		began := time.Now()
		_, err := d.List(t.Context(), true)
		close(release)
		if (containerbroker.Unanswered(err) != "") != hangs || (err != nil) != hangs || time.Since(began) > 5*time.Second {
			t.Errorf("an LXD that %s: %v after %v", what, err, time.Since(began))
		}
	}
}
