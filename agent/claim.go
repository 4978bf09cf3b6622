package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/hostlock"
)

// claimAll claims the namespace on all installed hypervisors.
func (h *host) claimAll(ctx context.Context, c spec.Config) error {
	return afterAnother(ctx, func() error {
		for _, t := range h.types() {
			if err := h.claim(t, h.drivers[t].socket(h.paths, c.Types), c.Namespace); err != nil {
				return err
			}
		}
		return nil
	})
}

// reclaim claims the namespace on the hypervisors that are used now, in place of those of before.
func (h *host) reclaim(ctx context.Context, c spec.Config) error {
	if err := h.unclaim(); err != nil {
		return err
	}
	clear(h.claims)
	return h.claimAll(ctx, c)
}

// afterAnother calls try until it no longer fails with fault.Conflict, for up
// to a second, because a service manager may start the next agent before the
// kernel has closed the files of the last one.
func afterAnother(ctx context.Context, try func() error) error {
	for deadline := time.Now().Add(time.Second); ; {
		if err := try(); !fault.Is(err, fault.Conflict) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// claim locks the namespace on a hypervisor until this process ends. It fails
// with fault.Conflict, which names the holder, if another process holds the
// lock. The lock's name contains the device and inode of the socket's
// directory, because each start of LXD makes a new socket in the same
// directory. Idempotent.
func (h *host) claim(t spec.ContainerType, socket, namespace string) error {
	if socket == "" || h.claims[t] != nil {
		return nil
	}
	if target, err := filepath.EvalSymlinks(socket); err == nil {
		socket = target
	}
	dir := filepath.Dir(socket)
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cannot claim the namespace: %w", err)
	}
	is := info.Sys().(*syscall.Stat_t)
	path := h.paths.Claim(string(t), is.Dev, is.Ino, namespace)
	lock, err := hostlock.TryAcquire(path, fmt.Sprintf("namespace %q with the state directory %s", namespace, h.paths.StateDir))
	if fault.Is(err, fault.Conflict) {
		holder, _ := hostlock.Read(path)
		return fault.New(fault.Conflict, "cannot manage the %s instances of %s: another agent does, %s; stop it, or give this agent another namespace (namespace: NAME in %s)",
			t, dir, holder, h.paths.Config)
	}
	if err != nil {
		return err
	}
	h.claims[t] = lock
	return nil
}

// unclaim releases all locks that claim took.
func (h *host) unclaim() error {
	var errs []error
	for _, lock := range h.claims {
		errs = append(errs, lock.Release())
	}
	return errors.Join(errs...)
}
