//go:build integration

package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/tests/harness"
)

// After an error of the disk, the agent ends, so that its next start opens and checks
// the store. What it had acknowledged is there.
func TestAFailedStoreEndsTheAgent(t *testing.T) {
	a := harness.NewAgent(t, t.TempDir())
	a.Start()
	a.Apply("kept", "version: 1\nvolumes: {kept: {provider: loop, size: 8MiB}}\n")
	info, err := os.Stat(filepath.Join(a.State(), "state.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	// The kernel refuses writes beyond the limit with EFBIG.
	limit := unix.Rlimit{Cur: uint64(info.Size()), Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(a.PID(), unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	if out, err := a.Try("apply", "-f", a.File("lost", "version: 1\nvolumes: {lost: {provider: loop, size: 8MiB}}\n")); err == nil {
		t.Errorf("acknowledged: %s", out)
	}
	harness.Wait(t, "the end of the agent", 30*time.Second, func() error {
		if !a.Exited() {
			return errors.New("it still runs")
		}
		return nil
	})
	a.Start()
	if out := a.Run("show", "volume/kept"); out == "" {
		t.Error("volume/kept is gone")
	}
	a.Run("delete", "declaration/kept", "--wait")
}
