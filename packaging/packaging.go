// Package packaging installs the programs that hostler needs with the host's
// package manager. It reports while it waits for another user of the package
// manager, and finishes interrupted installations.
package packaging

import (
	"context"
	"strings"

	"hostler/internal/fault"
)

// Manager is a package manager.
type Manager interface {
	// Missing returns the names that are not fully installed. It reads the
	// package manager's records and starts no program.
	Missing(names []string) ([]string, error)
	// Unavailable returns the names that no configured repository offers. Before
	// the lists of packages are fetched, it returns no names.
	Unavailable(ctx context.Context, names []string) ([]string, error)
	// FetchLists fetches the lists of packages if there are none, so that
	// Unavailable can tell. The caller must hold the host lock.
	FetchLists(ctx context.Context, progress func(string)) error
	// Unfinished reports whether an installation by this agent was interrupted,
	// or one of the names was left half-way. If so, Install has work even if no
	// package is missing.
	Unfinished(names ...string) bool
	// Install first finishes an interrupted installation and then installs all
	// names, without the packages that they only recommend. If there is no work
	// it starts no program. progress receives plain sentences, e.g. "fetching
	// the lists of packages". Errors have a kind of package fault; most are
	// transient, because a later try may find a mended package, a working
	// network or a free lock. The caller must hold the host lock.
	Install(ctx context.Context, names []string, progress func(string)) error
}

// Finish finishes an interrupted installation, of whatever packages, and installs
// no others. ours is true if there was one and the package manager knows at least
// one of the names, so that the installation may have been theirs and may lack
// packages. Otherwise a program of the names was installed by other means, e.g.
// by hand. The caller must hold the host lock.
func Finish(ctx context.Context, m Manager, names []string, progress func(string)) (ours bool, err error) {
	if !m.Unfinished() {
		return false, nil
	}
	if err := m.Install(ctx, nil, progress); err != nil {
		return false, err
	}
	missing, err := m.Missing(names)
	return len(missing) < len(names) || m.Unfinished(names...), err
}

// CheckOffered returns fault.NeedsOperator if no configured repository offers
// some of the names. remedy says how the operator makes apt offer them.
func CheckOffered(ctx context.Context, m Manager, names []string, remedy string) error {
	lacking, err := m.Unavailable(ctx, names)
	if err != nil || len(lacking) == 0 {
		return err
	}
	return fault.New(fault.NeedsOperator, "no repository of this host offers %s; %s", strings.Join(lacking, ", "), remedy)
}
