//go:build integration

package machines

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// An LXD that is stopped by SIGSTOP tells nothing and breaks nothing off: within
// ten seconds its machines are unknown, and when it goes on they run as before.
func TestMachinesOfAHangingLXDAreUnknownSoon(t *testing.T) {
	s, a := start(t)
	w := &world{t: t, s: s, a: a}
	a.Run("apply", "-f", a.File("site", "version: 1\nmachines: {web: {type: lxd, image: \"lxd:tiny\"}}\n"), "--wait", "--timeout", "2m")
	before := w.find("web").State.Pid
	shows := func(status string) func() error {
		return func() error {
			if row := a.Machines()["web"]; row.Status != status {
				return fmt.Errorf("it is %s: %s", row.Status, row.Message)
			}
			return nil
		}
	}
	s.Freeze()
	defer s.Thaw()
	frozen := time.Now()
	harness.Wait(t, "the machine to be unknown", 10*time.Second, shows("unknown"))
	t.Logf("it was shown as unknown after %v", time.Since(frozen).Round(100*time.Millisecond))
	if message := a.Machines()["web"].Message; !strings.Contains(message, "LXD does not answer") {
		t.Errorf("it says %q", message)
	}
	s.Thaw()
	thawed := time.Now()
	harness.Wait(t, "the machine to run again", 30*time.Second, shows("running"))
	t.Logf("it was shown as running after %v", time.Since(thawed).Round(100*time.Millisecond))
	if now := w.find("web").State.Pid; now != before {
		t.Errorf("its init was %d and is %d", before, now)
	}
}
