package packaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/run"
)

// A child of the test binary holds a lock like dpkg.
func TestHeldLockIsWaitedForAndItsHolderNamed(t *testing.T) {
	if file := os.Getenv("LOCK_CHILD"); file != "" {
		holdLock(t, file)
		return
	}
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "absent"), filepath.Join(dir, "lock")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := run.Host{}.Run(t.Context(), run.Command{
		Path: self, Args: []string{"-test.run=^TestHeldLockIsWaitedForAndItsHolderNamed$"},
		Env: []string{"LOCK_CHILD=" + files[1]}, Detach: filepath.Join(dir, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		holder, held, err := findHolder(files)
		if err != nil {
			t.Fatal(err)
		}
		if held {
			if holder.pid != child.PID {
				t.Errorf("held by %v, want process %d", holder, child.PID)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the child holds no lock")
		}
		time.Sleep(5 * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = waitForLocks(ctx, files, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), strconv.Itoa(child.PID)) {
		t.Errorf("got %v", err)
	}
	var said []string
	err = waitForLocks(t.Context(), files, func(s string) {
		said = append(said, s)
		_ = syscall.Kill(child.PID, syscall.SIGKILL)
	})
	want := fmt.Sprintf("(process %d) for 0s", child.PID)
	if err != nil || len(said) != 1 || !strings.Contains(said[0], want) || !strings.HasPrefix(said[0], "waiting for dpkg's lock, held by packaging") {
		t.Errorf("said %q, %v", said, err)
	}
	if _, err := os.Stat(files[1]); err != nil {
		t.Errorf("the lock file is gone: %v", err)
	}
}

func holdLock(t *testing.T, file string) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // the parent kills it long before
}

// A message names a program by its whole name, although the kernel keeps only
// 15 bytes, and a script by its own name.
func TestProgramIsRecognisedByItsWholeName(t *testing.T) {
	script := filepath.Join(t.TempDir(), "unattended-upgrade")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho here\nread line\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range [][]string{{script}, {"/bin/sh", script}} {
		cmd := exec.Command(test[0], test[1:]...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// A process has its name before its arguments.
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		want := filepath.Base(test[0])
		if got := programOf(cmd.Process.Pid); got != want {
			t.Errorf("%v is told as %q, not %q", test, got, want)
		}
		_ = in.Close()
		_ = cmd.Wait()
	}
}
