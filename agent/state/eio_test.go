//go:build integration

package state_test

import (
	"fmt"
	"strings"
	"testing"
)

// A single failed sync ends all writes until the store is opened again: the
// next sync would succeed although the data is not on the disk.
func TestFailedSyncStopsWrites(t *testing.T) {
	for when := 1; when <= 40; when += 3 {
		t.Run(fmt.Sprint(when), func(t *testing.T) {
			dir := t.TempDir()
			// strace counts the calls of each thread separately.
			h := startHelper(t, dir, []string{noCopiesEnv + "=1"}, "strace", "-f", "-qq", "-o", "/dev/null",
				"-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:error=EIO:when=%d", when))
			first := h.line()
			names, last := h.acked()
			if strings.HasPrefix(first, "open") && (len(last) != 2 || !strings.HasPrefix(last[0], "error needs-operator") ||
				!strings.HasPrefix(last[1], "then needs-operator") || !strings.Contains(last[1], "read-only")) {
				t.Errorf("after %d writes: %q", len(names), last)
			}
			if when > 30 && len(names) == 0 {
				t.Errorf("nothing was written: %q", first)
			}
			kept(t, dir, names)
		})
	}
}
