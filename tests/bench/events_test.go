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

// shutdowns are the moments at which LXD sent the events of its instances' ends.
type shutdowns struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// watchShutdowns reads the events with LXD's own client until the test ends.
func (r *rig) watchShutdowns() *shutdowns {
	r.b.Helper()
	s := &shutdowns{last: map[string]time.Time{}}
	cmd := exec.Command("lxc", "monitor", "--type=lifecycle", "--format=json")
	cmd.Env = append(os.Environ(), "LXD_DIR="+r.lxd.Dir, "LXD_CONF="+r.lxd.Dir)
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
			if event.Metadata.Action == "instance-shutdown" {
				s.mu.Lock()
				s.last[path.Base(event.Metadata.Source)] = event.Timestamp
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// of returns the moment of an instance's event since a death.
func (s *shutdowns) of(r *rig, name string, died time.Time) (at time.Time) {
	r.b.Helper()
	harness.Wait(r.b, "LXD's event of the end of "+name, 10*time.Second, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at = s.last[name]; at.Before(died) {
			return fmt.Errorf("the last one was at %s", at)
		}
		return nil
	})
	return at
}
