//go:build failpoint

package state_test

import (
	"fmt"
	"testing"

	"hostler/internal/failpoint"
)

// The process is killed, and made to fail, at every failpoint of the store: no
// acknowledged write is lost, and the store passes its checks afterwards.
func TestCrashPoints(t *testing.T) {
	for _, point := range []failpoint.Point{
		failpoint.StoreBeforeIntent, failpoint.StoreAfterIntent, failpoint.StoreEffectNoResult, failpoint.StoreResultNoAck,
		failpoint.StoreEventAppend, failpoint.StoreBackupNoRename, failpoint.StoreBackupNoDirSync,
		failpoint.StoreIdentityNoRename, failpoint.StoreMidMigration,
	} {
		for _, verb := range []failpoint.Verb{failpoint.Kill, failpoint.Fail, failpoint.Panic} {
			nth := 1
			if point == failpoint.StoreEffectNoResult || point == failpoint.StoreEventAppend {
				nth = 5
			}
			t.Run(fmt.Sprintf("%s %s", point, verb), func(t *testing.T) {
				dir := t.TempDir()
				h := startHelper(t, dir, []string{fmt.Sprintf("%s=%s=%s#%d", failpoint.PlanEnv, point, verb, nth)})
				var names []string
				for line := h.line(); line != ""; line = h.line() {
					var name string
					if n, _ := fmt.Sscanf(line, "ack %s", &name); n == 1 {
						names = append(names, name)
					}
					// A failed backup is only logged, so the writer continues.
					if len(names) == 60 {
						_ = h.cmd.Process.Kill()
					}
				}
				_ = h.cmd.Wait()
				kept(t, dir, names)
			})
		}
	}
}
