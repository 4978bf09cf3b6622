package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hostler/agent/api"
	"hostler/agent/spec"
	"hostler/containerbroker/kvm"
	kvminit "hostler/initialisers/kvm"
	"hostler/internal/hosttest"
	"hostler/internal/paths"
)

// F35: files removed from the runtime directory are restored unchanged, and no
// guest is taken for another meanwhile.
func TestF35TheRuntimeDirectoryIsMadeAgain(t *testing.T) {
	var err error
	dir := hosttest.SocketDir(t)
	h := &host{paths: paths.New("", "", t.TempDir(), filepath.Join(dir, "hostler")), drivers: drivers(), logger: slog.New(slog.DiscardHandler)}
	if h.listener, err = api.Listen(h.logger, h.paths.Socket(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	defer h.listener.Close()
	guests := accelerator(h.paths)
	if how := guests(); how != kvm.AcceleratorTCG {
		t.Errorf("before it is known guests run by %q", how)
	}
	proven := kvminit.Outcome{Accelerator: kvm.AcceleratorKVM, Asked: kvminit.AcceleratorAuto}
	if err := proven.Write(h.paths); err != nil {
		t.Fatal(err)
	}
	if how := guests(); how != kvm.AcceleratorKVM {
		t.Errorf("guests run by %q", how)
	}
	renewers := h.renewers()
	h.renewRuntime(renewers)
	for range 2 {
		if err := os.RemoveAll(h.paths.RunDir); err != nil {
			t.Fatal(err)
		}
		if how := guests(); how != kvm.AcceleratorKVM {
			t.Errorf("meanwhile guests run by %q", how)
		}
		h.renewRuntime(renewers)
		if c, err := net.Dial("unix", h.paths.Socket()); err != nil {
			t.Error(err)
		} else {
			_ = c.Close()
		}
		if again, err := kvminit.ReadOutcome(h.paths); err != nil || again != proven {
			t.Errorf("how guests run here: %+v, %v", again, err)
		}
	}
}

// The worker sees by itself that the directory was removed, also a second time.
func TestF35TheWorkerRestoresTheRuntimeDirectory(t *testing.T) {
	var err error
	h := &host{paths: paths.New("", "", t.TempDir(), filepath.Join(hosttest.SocketDir(t), "hostler")), drivers: drivers(), logger: slog.New(slog.DiscardHandler)}
	if h.listener, err = api.Listen(h.logger, h.paths.Socket(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	defer h.listener.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.keepRuntime(ctx) }()
	for range 3 {
		for errors.Is(os.RemoveAll(h.paths.RunDir), syscall.ENOTEMPTY) { // the worker was faster
		}
		// The wait is shorter than the interval of checks without an event.
		for deadline := time.Now().Add(runtimeInterval / 2); ; {
			c, err := net.Dial("unix", h.paths.Socket())
			if err == nil {
				_ = c.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An attempt that fails does not cause the next one through its own changes of
// the directory.
func TestFailedRestorationsAreSpaced(t *testing.T) {
	h := &host{paths: paths.New("", "", t.TempDir(), filepath.Join(hosttest.SocketDir(t), "hostler")), logger: slog.New(slog.DiscardHandler)}
	var err error
	if h.listener, err = api.Listen(h.logger, h.paths.Socket(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	defer h.listener.Close()
	attempts, calls := make(chan time.Time, 100), 0
	h.drivers = map[spec.ContainerType]constructors{"fails": {renewer: func(p paths.Paths) func() error {
		return func() error {
			if calls++; calls <= 2 { // the directory is watched from then on
				return nil
			}
			attempts <- time.Now()
			return errors.Join(errors.New("the disk is full"), os.Chmod(p.RunDir, 0o750))
		}
	}}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.keepRuntime(ctx) }()
	var first time.Time
	for first.IsZero() {
		select {
		case first = <-attempts:
		case <-time.After(renewDelay): // the watch may begin later
			if err := os.Chmod(h.paths.RunDir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := (<-attempts).Sub(first); after < renewRetry {
		t.Errorf("the second attempt came %s after the first", after)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
