package agent

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"hostler/agent/services/metrics"
	"hostler/internal/hostlock"
	"hostler/internal/paths"
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
