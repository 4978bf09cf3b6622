package guard

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler/hostnet"
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

// A revert that fails is repeated after longer and longer pauses.
func TestAFailedRevertIsRepeatedAfterAPause(t *testing.T) {
	host, err := hostnet.Open(hostnet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host.Close() // it cannot be observed
	dir := filepath.Join(t.TempDir(), "guard")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := New(Options{Dir: dir, Host: host, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err := g.write(&checkpoint{Version: checkpointVersion, ID: "one", Phase: Confirming, Boot: bootID()}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() {
			_, err := Watch(ctx, g.o)
			watched <- err
		}()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "cannot be reverted yet"); n < 5 || n > 40 {
			t.Errorf("%d attempts in ten minutes", n)
		}
	})
}
