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

// claimAll claims all installed hypervisors. It waits up to a second for the
// end of another agent, as openStore does.
func (h *host) claimAll(ctx context.Context) error {
	for deadline := time.Now().Add(time.Second); ; {
		var err error
		for _, t := range h.types() {
			if err = h.claim(t, h.drivers[t].socket(h.paths), h.begun.Namespace); err != nil {
				break
			}
		}
		if !fault.Is(err, fault.Conflict) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// claim locks the namespace on a hypervisor for this process, until the process
// ends. fault.Conflict names the process that holds the lock. The lock's name
// holds the device and inode of the socket's directory: each start of LXD makes
// a new socket in the same directory. Idempotent.
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

// unclaim releases all locks of claim.
func (h *host) unclaim() error {
	var errs []error
	for _, lock := range h.claims {
		errs = append(errs, lock.Release())
	}
	return errors.Join(errs...)
}
