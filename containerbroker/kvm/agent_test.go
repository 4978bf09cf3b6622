package kvm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
)

// K3: the agent gets its long time to come up once in each life of its guest.
// After it answered, or after that time, the wait is short.
func TestFirstAnswerOfAnAgentMayTakeLong(t *testing.T) {
	const most = 10 * time.Minute
	dom := libvirt.Domain{Name: "web", ID: 7}
	for name, c := range map[string]struct {
		age         time.Duration // since the guest's start; 0: unknown
		answered    int32         // in which life
		least, most time.Duration
	}{
		"start unknown":           {0, 0, most, most},
		"coming up":               {4 * time.Minute, 0, 6*time.Minute - 10*time.Second, 6 * time.Minute},
		"had its time":            {time.Hour, 0, agentSilence, agentSilence},
		"the clock was set back":  {-time.Hour, 0, most, most},
		"answered":                {time.Minute, 7, agentSilence, agentSilence},
		"answered in a life past": {time.Minute, 6, 9*time.Minute - 10*time.Second, 9 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Options{RuntimeDir: t.TempDir(), AgentTimeout: most})
			if c.age != 0 {
				file, began := filepath.Join(d.opts.RuntimeDir, "web.pid"), time.Now().Add(-c.age)
				if err := os.WriteFile(file, []byte("1\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(file, began, began); err != nil {
					t.Fatal(err)
				}
			}
			if c.answered != 0 {
				d.learned["web"] = lesson{life: c.answered, addresses: []string{"10.0.0.2"}, at: time.Now()}
			}
			if got := d.agentLimit(dom); got < c.least || got > c.most {
				t.Errorf("%s, not %s to %s", got, c.least, c.most)
			}
		})
	}
}
