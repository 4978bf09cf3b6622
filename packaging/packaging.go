// Package packaging installs the programs that hostler needs with the host's
// package manager. It reports while it waits for another user of the package
// manager, and finishes interrupted installations.
package packaging

import "context"

// Manager is a package manager.
type Manager interface {
	// Missing returns the names that are not fully installed. It reads the
	// package manager's records and starts no program.
	Missing(names []string) ([]string, error)
	// Unfinished reports that an installation by this agent was interrupted, so
	// that Install has work even if no package is missing.
	Unfinished() bool
	// Install first finishes an interrupted installation and then installs all
	// names. If there is no work it starts no program. progress receives plain
	// sentences, e.g. "fetching the lists of packages". Errors have a kind of
	// package fault; most are transient, because a later try may find a mended
	// package, a working network or a free lock. The caller holds the host
	// lock.
	Install(ctx context.Context, names []string, opts Options, progress func(string)) error
}

// Options changes how packages are installed.
type Options struct {
	// NoRecommends omits packages that are only recommended.
	NoRecommends bool
}
