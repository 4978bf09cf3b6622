// Package harness gives black-box tests real hosts to try hostler on: an LXD
// of their own, beside the system's, and in it containers with systemd that
// serve as whole machines. It shares no code with hostler.
package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Root is the top folder of the clone.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("cannot find the top folder of the clone")
	return ""
}

// Try runs a program and returns its standard output; the error holds what it
// wrote to standard error.
func Try(env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A daemon that inherits the pipes must not hold the test up.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// Run is Try for programs that must succeed.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := Try(nil, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Wait looks repeatedly until look returns nil, and fails the test with
// its last error when the time is up.
func Wait(t testing.TB, what string, limit time.Duration, look func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(pause)
	}
}
