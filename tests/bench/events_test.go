//go:build integration

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"sync"
	"time"

	"hostler/tests/harness"
)

// moments are the times at which the daemon sent the last event of a kind for
// each instance.
type moments struct {
	action string

	mu   sync.Mutex
	last map[string]time.Time
}

// watch reads the events of an action, e.g. instance-started, with the daemon's
// own client until the test ends.
func (r *rig) watch(action string) *moments {
	r.b.Helper()
	s := &moments{action: action, last: map[string]time.Time{}}
	cmd := exec.Command(r.lxd.Daemon.Client, "monitor", "--type=lifecycle", "--format=json")
	cmd.Env = append(os.Environ(), r.clientEnv(r.lxd.Dir)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.b.Fatal(err)
	}
	r.b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		for events := json.NewDecoder(out); ; {
			var event struct {
				Timestamp time.Time
				Metadata  struct{ Action, Source string }
			}
			if events.Decode(&event) != nil {
				return
			}
			if event.Metadata.Action == action {
				s.mu.Lock()
				s.last[path.Base(event.Metadata.Source)] = event.Timestamp
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// of returns the moment of an instance's event after a time.
func (s *moments) of(r *rig, name string, after time.Time) (at time.Time) {
	r.b.Helper()
	harness.Wait(r.b, "the event "+s.action+" of "+name, 10*time.Second, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at = s.last[name]; at.Before(after) {
			return fmt.Errorf("the last one was at %s", at)
		}
		return nil
	})
	return at
}
