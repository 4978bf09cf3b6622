package hosttest

import (
	"os"
	"testing"
)

// SocketDir returns a directory with a short path, which is removed when the
// test ends. A socket's path has at most 107 bytes. The path of t.TempDir may
// be longer, because it contains the test's whole name.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "test") //nolint:usetesting // its path holds the test's whole name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cannot remove the sockets' directory: %v", err)
		}
	})
	return dir
}
