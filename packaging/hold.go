package packaging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// holdLimit bounds the time for which installations are held back.
const holdLimit = 15 * time.Minute

// LiftFile is the file of cloud-init's folder that exists while cloud-init waits
// for hostler.
const LiftFile = "hostler-waiting"

// Hold keeps installations back while cloud-init is at work. cloud-init waits
// only 30 s for dpkg's lock (APT_LOCK_WAIT_TIMEOUT in cloudinit/distros/debian.py)
// and fails the boot then. While cloud-init waits for hostler, it installs
// nothing, so there is no hold. A nil Hold holds nothing back.
type Hold struct {
	dir   string
	ended func(context.Context) bool
	now   func() time.Time

	mu sync.Mutex
	// began is the time of the first installation that was held back. It stays,
	// so that the limit covers all installations together.
	began time.Time
	waits int
}

// NewHold returns the hold for a cloud-init with its run-time files in dir. ended
// reports whether cloud-init has ended without a result, e.g. because it was
// killed.
func NewHold(dir string, ended func(context.Context) bool, now func() time.Time) *Hold {
	return &Hold{dir: dir, ended: ended, now: now}
}

// Wait returns when cloud-init has ended, waits for hostler, or has been waited
// for to the limit.
func (h *Hold) Wait(ctx context.Context, progress func(string)) error {
	if h == nil || !h.atWork(ctx) {
		return nil
	}
	start := h.begin()
	defer h.end()
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	var reported time.Time
	for h.atWork(ctx) {
		now := h.now()
		if now.Sub(start) >= holdLimit {
			progress(fmt.Sprintf("cloud-init is at work for more than %d minutes; packages are installed beside it", int(holdLimit.Minutes())))
			return nil
		}
		if now.Sub(reported) >= sayEvery {
			progress(fmt.Sprintf("waiting for cloud-init, which may install packages, for %ds", int(now.Sub(start).Seconds())))
			reported = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for cloud-init: %w", ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

// Held returns the time since which installations are held back, and false if
// none is.
func (h *Hold) Held() (since time.Time, held bool) {
	if h == nil {
		return time.Time{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.began, h.waits > 0
}

func (h *Hold) begin() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		h.began = h.now()
	}
	h.waits++
	return h.began
}

func (h *Hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits--
}

// atWork reports whether cloud-init may install packages. cloud-init makes
// status.json at the beginning of a boot, and result.json at its end.
func (h *Hold) atWork(ctx context.Context) bool {
	return h.has("status.json") && !h.has("result.json") && !h.has(LiftFile) && !h.ended(ctx)
}

func (h *Hold) has(name string) bool {
	_, err := os.Stat(filepath.Join(h.dir, name))
	return err == nil
}
