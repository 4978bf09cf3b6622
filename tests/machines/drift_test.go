//go:build integration

package machines

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// P17: a change that another client of the daemon makes to a running machine is
// put right as it runs. Settings that hostler does not write stay as they are.
func TestDriftIsPutRight(t *testing.T) {
	for _, daemon := range drifting {
		t.Run(daemon.Name, func(t *testing.T) {
			w := open(t, daemon)
			w.a.Start()
			w.a.Apply("site", "version: 1\nmachines:\n  web: {type: "+daemon.Name+", image: \""+w.Image()+"\", cpus: 1, memory: 64MiB}\n")
			was := w.find("web")
			memory := was.Config["limits.memory"]
			w.call("PATCH", "/1.0/instances/web", map[string]any{"config": map[string]string{
				"limits.cpu": "2", "limits.memory": "", "limits.processes": "500",
			}})
			harness.Wait(t, "the drift to be put right", time.Minute, func() error {
				now := w.find("web")
				if now.Config["limits.cpu"] != "1" || now.Config["limits.memory"] != memory || memory == "" {
					return fmt.Errorf("it has %v", now.Config)
				}
				return nil
			})
			now := w.find("web")
			if now.State.Pid != was.State.Pid || now.State.Pid == 0 {
				t.Errorf("its init was %d and is %d", was.State.Pid, now.State.Pid)
			}
			if now.Config["limits.processes"] != "500" {
				t.Errorf("a setting that is not hostler's is %q", now.Config["limits.processes"])
			}
			harness.Wait(t, "the event", time.Minute, func() error {
				if out := w.a.Run("events", "machine/web"); !strings.Contains(out, "cpus: 2 → 1") {
					return errors.New(out)
				}
				return nil
			})
		})
	}
}
