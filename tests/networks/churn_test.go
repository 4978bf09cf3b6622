//go:build integration

package networks

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// churn makes and deletes 120 links for as long as it may; one that is gone
// when it is to be deleted is said.
const churn = `
while :; do
  for i in $(seq 60); do echo "link add c$i type veth peer name d$i"; done | ip -batch - || echo "add failed"
  for i in $(seq 60); do echo "link del c$i"; done | ip -batch - || echo "del failed"
done`

// While another process makes and deletes links without a pause, nothing wrong
// is done, and the agent holds no more than before.
func TestChurn(t *testing.T) {
	a, n := bare(t)
	a.Apply("site", alone)
	want := snapshot(n)
	held := func() (files, routines int) {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.PID()))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(harness.Run(t, "curl", "-sS", "--unix-socket", a.Socket(), "http://hostler/metrics")) {
			if value, ok := strings.CutPrefix(line, "go_goroutines "); ok {
				routines, _ = strconv.Atoi(strings.TrimSpace(value))
			}
		}
		return len(entries), routines
	}
	files, routines := held()
	monitor, seen := start(t, n, "ip -o monitor link address dev br-hlan")
	_, said := start(t, n, churn)
	first := passed(t, a)
	harness.Wait(t, "the passes", 10*time.Minute, func() error {
		if now := passed(t, a) - first; now < passes {
			return fmt.Errorf("%d of %d", now, passes)
		}
		return nil
	})
	stop(monitor)
	if text := seen(); strings.Contains(text, "br-hlan") {
		t.Errorf("the bridge was touched:\n%s", text)
	}
	if text := said(); text != "" {
		t.Errorf("others' links were touched: %s", text)
	}
	if now := snapshot(n); now != want {
		t.Errorf("the network was\n%s\nand is\n%s", want, now)
	}
	if text := a.Run("events", "network/lan"); strings.Contains(text, "Repaired") || strings.Contains(text, "Failed") {
		t.Errorf("events:\n%s", text)
	}
	harness.Wait(t, "the agent to detach", 10*time.Second, func() error {
		if f, r := held(); f > files+2 || r > routines+3 {
			return fmt.Errorf("%d files and %d goroutines, before %d and %d", f, r, files, routines)
		}
		return nil
	})
}

// passed counts the passes of the networks' worker.
func passed(t testing.TB, a *harness.Agent) (n int) {
	t.Helper()
	var status struct {
		Workers []struct {
			Name   string
			Passes int
		}
	}
	if err := json.Unmarshal([]byte(a.Run("status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	for _, w := range status.Workers {
		if w.Name == "networks" {
			n = w.Passes
		}
	}
	return n
}

// start runs a script in the namespace until the test ends; said is what it
// has written.
func start(t testing.TB, n *nettest.Namespace, script string) (cmd *exec.Cmd, said func() string) {
	t.Helper()
	path := t.TempDir() + "/said"
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd = exec.Command("nsenter", "--net="+n.Path(), "--", "sh", "-c", "exec 2>&1; "+script)
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd) })
	return cmd, func() string { text, _ := os.ReadFile(path); return string(text) }
}

func stop(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
}
