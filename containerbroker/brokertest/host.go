package brokertest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/paths"
	"hostler/internal/run"
)

// Bridge makes a bridge on the host that serves no DHCP, until the test ends.
func Bridge(t testing.TB) string {
	t.Helper()
	name := "hbr" + strings.ToLower(rand.Text()[:8])
	command(t, paths.IP, "link", "add", "name", name, "type", "bridge", "forward_delay", "0")
	t.Cleanup(func() { command(t, paths.IP, "link", "delete", name) })
	command(t, paths.IP, "link", "set", name, "up")
	return name
}

// Device makes a loop device of 1 MiB.
func Device(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backing")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return Loop(t, file)
}

// Loop attaches a file to a loop device until the test ends. Options are those
// of losetup, e.g. --read-only.
func Loop(t testing.TB, file string, options ...string) string {
	t.Helper()
	name := command(t, "/usr/sbin/losetup", append([]string{"--find", "--show", file}, options...)...)
	t.Cleanup(func() { command(t, "/usr/sbin/losetup", "--detach", name) })
	return name
}

// command runs a program on the host and returns its output.
func command(t testing.TB, path string, args ...string) string {
	t.Helper()
	// t.Context() is already cancelled during cleanup.
	result, err := run.Host{}.Run(context.WithoutCancel(t.Context()), run.Command{Path: path, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(result.Stdout))
}
