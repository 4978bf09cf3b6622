//go:build integration

package bench

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// starts restarts the agent, which has many machines.
func (r *rig) starts(b *testing.B, n int) {
	// The service manager's socket, on which the agent reports that it is ready.
	path := filepath.Join(r.agent.Dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		b.Fatal(err)
	}
	defer manager.Close()
	defer func(env []string) { r.agent.Env = env }(r.agent.Env)
	r.agent.Env = append(slices.Clone(r.agent.Env), "NOTIFY_SOCKET="+path)
	var ready, passed []time.Duration
	for range 5 {
		r.quiet() // LXD still gathers the addresses that the last start asked for
		r.agent.Stop()
		began := time.Now()
		r.agent.Launch("")
		for message, buffer := "", make([]byte, 4096); !strings.Contains(message, "READY=1"); {
			_ = manager.SetReadDeadline(began.Add(time.Minute))
			length, err := manager.Read(buffer)
			if err != nil {
				b.Fatal(err)
			}
			message = string(buffer[:length])
		}
		ready = append(ready, time.Since(began))
		for !r.allPassed() {
			if time.Since(began) > time.Minute {
				b.Fatal("the workers make no pass")
			}
			time.Sleep(2 * time.Millisecond)
		}
		passed = append(passed, time.Since(began))
	}
	bound(fmt.Sprintf("start of hostlerd with %d machines to READY", n), milliseconds(median(ready)), 150, "ms", "median of 5: "+seconds(ready))
	bound(fmt.Sprintf("start of hostlerd with %d machines to the first complete pass", n), milliseconds(median(passed)), 500, "ms",
		"each of networks, storage and machines; median of 5, read at intervals: "+seconds(passed))
}

// allPassed reports whether each worker that looks at the machines or at what
// they need has made a complete pass.
func (r *rig) allPassed() bool {
	counts := r.metrics()
	for _, worker := range []string{"networks", "storage", "provisioner-lxd"} {
		if counts[fmt.Sprintf(`hostler_reconcile_passes_total{result="ok",worker=%q}`, worker)] < 1 {
			return false
		}
	}
	return true
}

// unit measures the provisioner in a process of its own, as under systemd.
func (r *rig) unit(b *testing.B, n int) {
	r.agent.Stop()
	r.agent.Flags = []string{"--provisioners", "elsewhere"}
	r.agent.Start()
	worker := *r.agent
	worker.Flags = []string{"worker", "provisioner-lxd"}
	worker.Launch("")
	harness.Wait(b, "the provisioner's first pass", time.Minute, func() error {
		if !r.allPassed() {
			return errors.New("there was none")
		}
		return nil
	})
	time.Sleep(releaseOfMemory)
	memory := memoryOf(b, worker.PID())
	bound(fmt.Sprintf("resident memory of a provisioner's unit idle with %d machines", n), float64(memory["VmRSS"])/1024, 24, "MiB",
		fmt.Sprintf("anonymous %d MiB, of files %d MiB, highest ever %d MiB", memory["RssAnon"]>>10, memory["RssFile"]>>10, memory["VmHWM"]>>10))
	worker.Stop()
	r.agent.Stop()
	r.agent.Flags = nil
	r.agent.Start()
}
