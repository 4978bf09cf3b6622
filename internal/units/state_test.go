package units

import (
	"strings"
	"testing"
	"time"
)

// The row of a provisioner's unit shows systemd's state, and the command that
// mends a failure if the operator must act.
func TestUnitStates(t *testing.T) {
	const unit = "hostler-provisioner@lxd.service"
	changed := time.Unix(2_000, 0)
	for name, c := range map[string]struct {
		load, active, sub, result string
		never                     bool
		state, says, down         string
	}{
		"running":       {load: "loaded", active: "active", sub: "running", result: "success", state: "running"},
		"starting":      {load: "loaded", active: "activating", sub: "start", result: "success", state: "running", says: ": start"},
		"between tries": {load: "loaded", active: "activating", sub: "auto-restart", result: "signal", state: "failed", says: "(signal) and is started again"},
		"queued":        {load: "loaded", active: "activating", sub: "auto-restart-queued", result: "exit-code", state: "failed", says: "is started again"},
		"given up":      {load: "loaded", active: "failed", sub: "failed", result: "start-limit-hit", state: "failed", says: "start-limit-hit", down: "journalctl -u " + unit},
		"stopped":       {load: "loaded", active: "inactive", sub: "dead", result: "success", state: "stopped", down: "is stopped"},
		"never started": {load: "loaded", active: "inactive", sub: "dead", never: true, state: "stopped", down: "is stopped"},
		"masked":        {load: "masked", active: "inactive", sub: "dead", state: "masked", says: "systemctl unmask " + unit, down: "systemctl unmask " + unit},
		"masked, fell":  {load: "masked", active: "failed", sub: "failed", state: "masked", says: "systemctl unmask " + unit, down: "is masked"},
		"masked, runs":  {load: "masked", active: "active", sub: "running", state: "running"},
		"absent":        {load: "not-found", active: "inactive", sub: "dead", never: true, state: "failed", says: "is not there", down: "is not there"},
		"stops":         {load: "loaded", active: "deactivating", sub: "stop-sigterm", state: "running", says: ": stop-sigterm"},
	} {
		properties := map[string]any{
			"LoadState": c.load, "ActiveState": c.active, "SubState": c.sub, "Result": c.result,
			"StateChangeTimestamp": uint64(changed.UnixMicro()),
		}
		since := changed
		if c.never {
			properties["StateChangeTimestamp"], since = uint64(0), time.Time{}
		}
		s := stateOf(unit, properties)
		row := s.Row()
		if row.State != c.state || !strings.Contains(row.Message, unit) || !strings.Contains(row.Message, c.says) || !row.Since.Equal(since) {
			t.Errorf("%s: %+v", name, row)
		}
		if down := s.down(); (down == "") != (c.down == "") || !strings.Contains(down, c.down) {
			t.Errorf("%s: down %q", name, down)
		}
	}
}
