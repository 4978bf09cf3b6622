//go:build integration

package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

const crashing = `version: 1
volumes:
  data: {provider: loop, size: 32MiB}
  raw: {provider: loop, size: 8MiB}
filesystems:
  www: {volume: data, type: ext4}
  scratch: {provider: tmpfs, size: 4MiB}
  logs: {provider: rootfs, size: 16MiB}
machines:
  app:
    type: lxd
    image: lxd:tiny
    storage: [{filesystem: www, path: /srv}, {filesystem: scratch, path: /scratch}, {filesystem: logs, path: /var/log/app}, {volume: raw}]
`

const without = "version: 1\nmachines: {app: {type: lxd, image: \"lxd:tiny\"}}\n"

// After a kill at each crash point of storage, the next agent completes the
// declaration: nothing is lost, doubled or left over, and the machine is not
// affected.
func TestCrashPoints(t *testing.T) {
	lxd := lxdtest.Start(t)
	w := world{t: t, lxd: lxd, Agent: harness.NewAgent(t, lxd.Dir)}
	w.Start()
	w.Apply("site", without)
	born := w.must("0", "/bin/busybox stat -c %Y /proc/1")
	for _, point := range failpoint.Storage {
		t.Run(string(point), func(t *testing.T) {
			w := world{t: t, lxd: lxd, Agent: w.With(t)}
			log := filepath.Join(w.Dir, "hits")
			_ = os.Remove(log)
			w.Stop()
			w.Env = append(w.Env, "HOSTLER_FAILPOINTS="+string(point)+"=kill#1", "HOSTLER_FAILPOINT_LOG="+log)
			w.Launch("failpoint")
			w.Ready()
			w.Env = w.Env[:len(w.Env)-2]
			deaths := w.converge(crashing)
			w.must("0", "echo kept > /srv/file && echo kept > /var/log/app/file && echo kept > /scratch/file && echo kept | dd of=/dev/hostler-raw conv=sync 2>/dev/null")
			if n := len(harness.Loops(t, w.State())); n != 3 {
				t.Errorf("%d loop devices", n)
			}
			deaths += w.converge(without)
			w.bare("")
			if hits, _ := os.ReadFile(log); !strings.Contains(string(hits), string(point)) || deaths != 1 {
				t.Errorf("the agent died %d times, at %q", deaths, hits)
			}
			if now := w.must("0", "/bin/busybox stat -c %Y /proc/1"); now != born {
				t.Error("the machine was started again")
			}
		})
	}
}

// converge declares and brings the agent back where it died, until everything
// is as declared and nothing else is left. It returns how often it died.
func (w world) converge(yaml string) (deaths int) {
	w.t.Helper()
	file := w.File("site", yaml)
	acknowledged := false
	harness.Wait(w.t, "convergence", time.Minute, func() error {
		if w.Exited() {
			deaths++
			w.Start()
		}
		if _, err := w.Try("apply", "--allow", "destroy", "-f", file); !acknowledged && err != nil {
			return err
		}
		acknowledged = true
		if out, err := w.Try("wait", "declaration/site", "--for", "ready", "--timeout", "1s"); err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		given, err := w.Try("get", "volumes", "-o", "name")
		if err != nil || given != "" && yaml == without {
			return fmt.Errorf("left: %s %w", given, err)
		}
		if code, out := w.Exit("plan", "-f", file); code != 0 {
			return errors.New(out)
		}
		if w.Exited() {
			return errors.New("it died after all")
		}
		return nil
	})
	return deaths
}
