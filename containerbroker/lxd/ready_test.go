package lxd

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// An instance that was started before the clock was set back is ready: the time
// of its start lies in the future for hours.
func TestReadinessAfterTheClockWasSetBack(t *testing.T) {
	f := newFakeLXD(t)
	found := api.InstanceFull{Instance: stamped(api.Running), State: &api.InstanceState{Pid: 77}}
	found.LastUsedAt = time.Now().Add(time.Hour)
	f.answer("GET /1.0/instances/web", found)
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "77", "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "77", "comm"), []byte("tiny\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := f.driver(func(o *Options) { o.Proc, o.StableTime = proc, 10*time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.WaitReady(ctx, testMachine(), nil); err != nil {
		t.Error(err)
	}
	if n := f.count(http.MethodGet); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}
