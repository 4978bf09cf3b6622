//go:build integration

// Package scale declares many Debian machines at once and checks the result and
// the agent's use of resources.
package scale

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// I11: the limits of the agent's resources.
const (
	maxRSS     = 128 << 10 // KiB
	maxFiles   = 256
	maxThreads = 64
	maxStore   = 256 << 20 // bytes
)

// Ten Debian machines with systemd come up from one declaration and one image.
func TestTenMachines(t *testing.T) { machines(t, 10, 10*time.Minute) }

func machines(t *testing.T, n int, limit time.Duration) {
	harness.RaiseLimits(t)
	server := lxdtest.Start(t)
	proxy := lxdtest.NewProxy(t, server.Socket)
	dir := t.TempDir()
	if err := os.Symlink(proxy.Socket, filepath.Join(dir, "unix.socket")); err != nil {
		t.Fatal(err)
	}
	agent := harness.NewAgent(t, dir)
	agent.Configure("namespace: scale\n")
	keep := agent.KeepImages()
	agent.Start()
	watched := watch(t, agent)

	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for i := range n {
		fmt.Fprintf(&text, "  m%03d: {type: lxd, image: debian/12}\n", i+1)
	}
	began := time.Now()
	agent.Run("apply", "--allow", "destroy", "-f", agent.File("many", text.String()), "--wait", "--timeout", limit.String())
	took := time.Since(began)
	keep()

	rows := agent.Machines()
	if len(rows) != n {
		t.Errorf("%d machines, want %d", len(rows), n)
	}
	for name, row := range rows {
		// A machine is running before the last job of its boot has ended.
		out, err := agent.Try("exec", name, "--", "systemctl", "is-system-running", "--wait")
		if state := strings.TrimSpace(out); row.Status != "running" || state != "running" {
			t.Errorf("%s is %s, its systemd %q (%v)", name, row.Status, state, err)
		}
	}
	if fetched := imports(proxy); fetched != 1 {
		t.Errorf("the image was given to LXD %d times, want once", fetched)
	}

	began = time.Now()
	agent.Run("delete", "declaration/many", "--wait", "--timeout", limit.String())
	gone := time.Since(began)
	if left := server.Names(); len(left) != 0 || len(agent.Machines()) != 0 {
		t.Errorf("left behind: %v", left)
	}
	high := watched()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%d machines: running after %.0f s, gone after %.0f s; agent at most %d MiB, %d files, %d threads, store %d KiB; load %s",
		n, took.Seconds(), gone.Seconds(), high.rss>>10, high.files, high.threads, high.store>>10, strings.Fields(string(load))[0])
	if high.rss == 0 || high.store == 0 {
		t.Errorf("the agent was not seen: %+v", high)
	}
	if high.rss > maxRSS || high.files > maxFiles || high.threads > maxThreads || high.store > maxStore {
		t.Errorf("the agent took too much: %+v", high)
	}
}

// imports counts how often an image was sent to LXD.
func imports(p *lxdtest.Proxy) int { return p.Counts()[http.MethodPost+" /1.0/images"] }

// use is the agent's highest use of resources.
type use struct {
	rss, files, threads int
	store               int64
}

// watch looks at the agent until the returned function is called.
func watch(t *testing.T, a *harness.Agent) (highest func() use) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan use)
	go func() {
		var high use
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			now := look(a)
			high = use{max(high.rss, now.rss), max(high.files, now.files), max(high.threads, now.threads), max(high.store, now.store)}
			select {
			case <-stop:
				done <- high
				return
			case <-tick.C:
			}
		}
	}()
	return func() use {
		close(stop)
		return <-done
	}
}

func look(a *harness.Agent) use {
	var now use
	process := fmt.Sprintf("/proc/%d/", a.PID())
	status, _ := os.ReadFile(process + "status")
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && fields[0] == "VmHWM:":
			now.rss, _ = strconv.Atoi(fields[1])
		case len(fields) > 1 && fields[0] == "Threads:":
			now.threads, _ = strconv.Atoi(fields[1])
		}
	}
	files, _ := os.ReadDir(process + "fd")
	now.files = len(files)
	stores, _ := filepath.Glob(filepath.Join(a.Dir, "state", "state.db*"))
	for _, path := range stores {
		if info, err := os.Stat(path); err == nil {
			now.store += info.Size()
		}
	}
	return now
}
