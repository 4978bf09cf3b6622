//go:build integration && failpoint

package packaging_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/internal/failpoint"
)

// I13: an agent that is killed at a crash point of an installation leaves no
// package half-way, and the test reaches the point.
func TestRealCrashPoints(t *testing.T) {
	for _, point := range []failpoint.Point{failpoint.InitDownload, failpoint.InitUnpack, failpoint.InitPostinst} {
		t.Run(string(point), func(t *testing.T) {
			c := newChroot(t)
			c.offer("lib", nil)
			c.offer("toy", map[string]string{"postinst": "sleep 0.5"})
			log := filepath.Join(t.TempDir(), "hits")
			pid := c.child("CHILD_INSTALL=lib toy", failpoint.PlanEnv+"="+string(point)+"=kill", failpoint.LogEnv+"="+log)
			c.wait("the kill", func() bool { return syscall.Kill(pid, 0) != nil })
			hits, err := os.ReadFile(log)
			c.must(err)
			if !strings.HasSuffix(string(hits), string(point)+"\n") {
				t.Fatalf("hit %q", hits)
			}
			if !c.apt.Unfinished() {
				t.Error("no mark of an unfinished installation")
			}
			c.must(c.install("lib", "toy"))
			c.wantClean("lib", "toy")
		})
	}
}
