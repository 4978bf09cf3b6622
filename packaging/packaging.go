// Package packaging installs the programs that hostler needs from the host's
// package manager, waits visibly while somebody else uses it, and mends what
// an interrupted installation left.
package packaging

import "context"

// Manager is a package manager.
type Manager interface {
	// Missing returns those of names that are not fully installed. It reads
	// the package manager's records and runs nothing.
	Missing(names []string) ([]string, error)
	// Unfinished says that an installation begun by this agent did not come to
	// its end, so that Install has something to do even if nothing is missing.
	Unfinished() bool
	// Install brings all names onto the host and mends an interrupted
	// installation before. With nothing missing and nothing to mend it runs no
	// program. progress receives plain sentences. Errors are of a kind of
	// package fault; most are transient, as a later try may find a mended
	// package, a working network or a free lock. The caller holds the host lock.
	Install(ctx context.Context, names []string, opts Options, progress func(string)) error
}

// Options changes how packages are installed.
type Options struct {
	// NoRecommends leaves out what the packages only recommend.
	NoRecommends bool
}
