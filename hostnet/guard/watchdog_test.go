package guard

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"hostler/internal/hostlock"
)

// A change that ends while the watchdog is about to revert it, e.g. because it is
// confirmed, is not reported as reverted.
func TestWatchDoesNotReportTheEndOfAnotherAsARevert(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "guard")
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Dir: dir})
		if err := g.write(&checkpoint{Version: checkpointVersion, ID: "one", Phase: Confirming, Boot: bootID()}); err != nil {
			t.Fatal(err)
		}
		end, err := hostlock.TryAcquire(g.lockPath("end"), "the host's network")
		if err != nil {
			t.Fatal(err)
		}
		type result struct {
			reverted bool
			err      error
		}
		watched := make(chan result, 1)
		go func() {
			reverted, err := Watch(t.Context(), Options{Dir: dir})
			watched <- result{reverted, err}
		}()
		time.Sleep(2 * look) // the deadline is over, so the watchdog waits for the lock
		if err := g.remove(); err != nil {
			t.Fatal(err)
		}
		if err := end.Release(); err != nil {
			t.Fatal(err)
		}
		if r := <-watched; r.reverted || r.err != nil {
			t.Errorf("%+v", r)
		}
	})
}
