package agent

import (
	"log/slog"
	"os"
	"strconv"
	"testing"

	"hostler/internal/paths"
	"hostler/internal/units"
)

// A process that systemd started has only the rights of its unit, wherever
// provisioners run. A program that such a process started has other rights.
func TestWorkIsAUnitWheneverSystemdStartedTheAgent(t *testing.T) {
	self, other := strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())
	for _, c := range []struct {
		placement Placement
		systemd   bool
		main      string
		unit      bool
	}{
		{Units, true, self, true},
		{Units, true, "", true},
		{Inside, true, self, true},
		{Elsewhere, true, self, true},
		{Inside, true, other, false},
		{Inside, true, "", false},
		{Inside, false, self, false},
	} {
		t.Setenv("SYSTEMD_EXEC_PID", c.main)
		h := &host{placement: c.placement, paths: paths.New(t.TempDir(), "", "", ""), logger: slog.New(slog.DiscardHandler)}
		if c.systemd {
			if err := os.MkdirAll(h.paths.SystemdRunning(), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, unit := h.runner(units.Apt).(*units.Runner); unit != c.unit {
			t.Errorf("%+v: apt is a unit: %v", c, unit)
		}
	}
}
