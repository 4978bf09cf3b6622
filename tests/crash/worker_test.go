//go:build integration

package crash_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/tests/harness"
)

// A provisioner in a process of its own gets changed types when the agent is
// restarted: it ends, and the service manager starts it again. A saved file alone,
// and a restart without changed types, leave it at work.
func TestAWorkerGetsChangedTypesWithTheAgentsRestart(t *testing.T) {
	dir, err := os.MkdirTemp("", "hostler-lxd") //nolint:usetesting // a unix socket's path holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lxd, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "unix.socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer lxd.Close()
	a := harness.NewAgent(t, dir)
	a.Flags = []string{"--provisioners", "elsewhere"}
	a.Start()
	worker := *a
	worker.Flags = []string{"worker", "provisioner-lxd"}
	worker.Launch("")
	// connected waits until the worker has asked LXD again.
	connected := func() {
		t.Helper()
		if err := lxd.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for pid := 0; pid != worker.PID(); {
			conn, err := lxd.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			if raw, err := conn.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) {
					if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
						pid = int(peer.Pid)
					}
				})
			}
			_ = conn.Close()
		}
	}
	connected()
	a.Configure("namespace: test\nconcurrency: 7\n")
	a.Stop()
	a.Start()
	connected()
	if worker.Exited() {
		t.Fatal("it ended without changed types")
	}
	a.Configure("namespace: test\nconcurrency: 7\ntypes: {lxd: {mtu: 1400}}\n")
	harness.Wait(t, "the notice of the saved file", time.Minute, func() error {
		if out := a.Run("status"); !strings.Contains(out, "changes under types take effect when the agent is restarted") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if worker.Exited() {
		t.Fatal("it ended before the agent's restart")
	}
	a.Stop()
	a.Start()
	harness.Wait(t, "the worker's end", time.Minute, func() error {
		if !worker.Exited() {
			return errors.New("it runs with the old types")
		}
		return nil
	})
}
