//go:build integration

package machines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// The provisioner in a process of its own, over the agent's socket, does all
// that it does inside the agent; killing it touches no guest, and the next one
// goes on.
func TestProvisionerInItsOwnProcess(t *testing.T) {
	s := lxdtest.Start(t)
	a := harness.NewAgent(t, s.Dir)
	a.Flags = []string{"--provisioners", "elsewhere"}
	a.Configure("namespace: test\nharvest: all\nretry-delay: 1s\nstart-retries: 2\n")
	a.Start()
	worker := func() *harness.Agent {
		w := *a
		w.Flags = []string{"worker", "provisioner-lxd"}
		w.Launch("")
		return &w
	}
	first := worker()
	a.Apply("site", strings.Replace(tiny, "db:  {type: lxd, image: \"lxd:tiny\"}", "db:  {type: lxd, image: busybox/1}", 1))
	before := must(t, s, "web")
	first.Kill()
	second := worker()
	a.Apply("more", "version: 1\nmachines:\n  cache: {type: lxd, image: busybox/1, cpus: 1}\n")
	a.Apply("more", "version: 1\nmachines:\n  cache: {type: lxd, image: busybox/1, cpus: 2}\n")
	if after := must(t, s, "web"); after.State.Pid != before.State.Pid {
		t.Errorf("web was restarted: pid %d → %d", before.State.Pid, after.State.Pid)
	}
	if i := must(t, s, "cache"); i.Config["limits.cpu"] != "2" {
		t.Errorf("cache has %s cpus", i.Config["limits.cpu"])
	}
	// F35: what is removed of the runtime directory comes back, with 0 effects.
	if err := os.RemoveAll(filepath.Join(a.Dir, "run")); err != nil {
		t.Fatal(err)
	}
	a.Ready()
	a.Apply("more", "version: 1\nmachines:\n  cache: {type: lxd, image: busybox/1, cpus: 1}\n")
	if after := must(t, s, "web"); after.State.Pid != before.State.Pid {
		t.Errorf("web was restarted: pid %d → %d", before.State.Pid, after.State.Pid)
	}
	// The agent goes away and comes back: the worker waits for it.
	a.Kill()
	a.Start()
	a.Run("delete", "declaration/more", "--wait", "--timeout", "2m")
	// P3: it loses its store, and the worker takes none of its guests for
	// unknown.
	a.Kill()
	if err := os.WriteFile(filepath.Join(a.Dir, "state", "state.db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Start()
	a.Run("wait", "machine/web", "--for", "ready", "--timeout", "2m")
	if after := must(t, s, "web"); after.State.Pid != before.State.Pid {
		t.Errorf("web is another: pid %d → %d", before.State.Pid, after.State.Pid)
	}
	a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
	if names := s.Names(); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	began := time.Now()
	second.Stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the worker took %s to end", took)
	}
}
