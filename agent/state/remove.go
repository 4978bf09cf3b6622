package state

import (
	"errors"
	"os"

	"hostler/internal/fault"
)

// Remove removes the store in the directory, with its identity and its
// quarantine, so that Open() creates a store as on a new host. The directory and
// its lock stay. It fails with fault.Conflict if a process has the store open.
func Remove(dir string) error {
	f := filesIn(dir)
	lock, err := lockDir(f.lock)
	if err != nil {
		return err
	}
	// If the removal is interrupted, a database or an identity is left without the
	// other, so that the next Open() reports Rebuilt.
	var errs []error
	for _, path := range append(f.sides(), f.lastGood, f.quarantine, f.mark, f.db, f.identity) {
		errs = append(errs, os.RemoveAll(path))
	}
	if err := errors.Join(append(errs, lock.release())...); err != nil {
		return fault.New(fault.NeedsOperator, "cannot remove the store: %w", err)
	}
	return nil
}
