package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler/agent/services/metrics"
	"hostler/internal/hostlock"
	"hostler/internal/paths"
	"hostler/packaging"
)

// C7: the status names the holder of the host lock and the operations that wait
// for it.
func TestC7WaitersForTheHostLockAreTold(t *testing.T) {
	h := &host{paths: paths.Paths{Root: t.TempDir()}, metrics: metrics.New("test"), logger: slog.New(slog.DiscardHandler), now: time.Now}
	if all := h.locks(); len(all) != 0 {
		t.Errorf("a free lock is told: %+v", all)
	}
	other, err := hostlock.TryAcquire(h.paths.HostLock(), "other work")
	if err != nil {
		t.Fatal(err)
	}
	purposes := []string{"kvm container initialisation", "lxd container initialisation"}
	waits, got := make(chan string, 2), make(chan func(), 2)
	for _, purpose := range purposes {
		go func() {
			release, err := h.lock(t.Context(), purpose, func(holder string) { waits <- holder })
			if err != nil {
				t.Error(err)
			}
			got <- release
		}()
	}
	for range purposes {
		<-waits
	}
	if all := h.locks(); len(all) != 1 || all[0].Purpose != "other work" || !slices.Equal(all[0].Waiting, purposes) {
		t.Errorf("locks %+v", all)
	}
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	for left := len(purposes); left > 0; left-- {
		release := <-got
		if all := h.locks(); len(all) != 1 || len(all[0].Waiting) != left-1 {
			t.Errorf("%d wait: locks %+v", left-1, all)
		}
		release()
	}
	if all := h.locks(); len(all) != 0 {
		t.Errorf("a free lock is told: %+v", all)
	}
}

// The status shows that an installation waits for cloud-init.
func TestWaitForCloudInitIsShown(t *testing.T) {
	root := t.TempDir()
	h := &host{paths: paths.Paths{Root: root}, metrics: metrics.New("test"), logger: slog.New(slog.DiscardHandler), now: time.Now}
	h.hold = packaging.NewHold(h.paths.CloudInit(), h.cloudInitFailed, h.now)
	if err := os.MkdirAll(h.paths.CloudInit(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.paths.CloudInit(), "status.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := h.lock(t.Context(), "lxd container initialisation", func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	_ = h.hold.Wait(ctx, func(string) {
		all := h.locks()
		if len(all) != 2 || all[1].Name != "packages" || all[1].Holder != "cloud-init" || !slices.Equal(all[1].Waiting, []string{"lxd container initialisation"}) {
			t.Errorf("locks %+v", all)
		}
		cancel()
	})
	if all := h.locks(); len(all) != 1 {
		t.Errorf("after the wait: %+v", all)
	}
}
