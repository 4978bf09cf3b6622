//go:build integration && failpoint

package lxd_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/initialisers/lxd"
	"hostler/internal/failpoint"
	"hostler/internal/run"
)

// TestChild initialises the host as a separate agent would, and dies on the
// way.
func TestChild(t *testing.T) {
	dir := os.Getenv("CHILD_DIR")
	if dir == "" {
		return // only for children
	}
	h := &private{t: t, dir: dir}
	h.build(os.Getenv("CHILD_ROOT"))
	if err := lxd.New(h.opts).Initialise(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
}

// After a kill at any crash point of the first configuration, the next agent
// brings the host to the same state: one pool, one bridge, and the same daemon
// if it had started.
func TestCrashPoints(t *testing.T) {
	for _, point := range []failpoint.Point{
		failpoint.InitLockHeld, failpoint.InitAptNoRecord, failpoint.InitWaitDaemon,
		failpoint.InitConfigured, failpoint.InitConfNoRename, failpoint.InitConfRenamed,
	} {
		t.Run(string(point), func(t *testing.T) {
			h := newPrivate(t)
			log := filepath.Join(t.TempDir(), "hits")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			child, err := run.Host{}.Run(t.Context(), run.Command{
				Path: self, Args: []string{"-test.run=^TestChild$"}, Detach: log + ".child",
				Env: []string{
					"CHILD_DIR=" + h.dir, "CHILD_ROOT=" + h.root,
					failpoint.PlanEnv + "=" + string(point) + "=kill", failpoint.LogEnv + "=" + log,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(time.Minute); syscall.Kill(child.PID, 0) == nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the child lives on")
				}
			}
			if hits, _ := os.ReadFile(log); !strings.HasSuffix(string(hits), string(point)+"\n") {
				output, _ := os.ReadFile(log + ".child")
				t.Fatalf("hit %q: %s", hits, output)
			}
			h.initialise()
			h.wantSatisfied(true)
			if pools := h.lxc("storage", "list", "-f", "csv"); strings.Contains(pools, "\n") || !strings.HasPrefix(pools, "default,btrfs") {
				t.Errorf("pools: %s", pools)
			}
			if bridges := strings.Count(h.lxc("network", "list", "-f", "csv"), ",YES,"); bridges != 1 {
				t.Errorf("%d bridges", bridges)
			}
			if left, _ := filepath.Glob(filepath.Join(h.root, "etc/sysctl.d/.*")); len(left) != 0 {
				t.Errorf("left over: %q", left)
			}
		})
	}
}
