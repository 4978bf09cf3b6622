package lxd

import (
	"net/http"
	"path/filepath"
	"testing"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// An LXD that is stopped, or about to be, is told in the same few words, and
// how to start it; nothing of a library's error reaches the user.
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
