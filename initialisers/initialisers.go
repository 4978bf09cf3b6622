// Package initialisers makes a host able to run one container type: packages,
// daemon, first configuration. One folder per type.
package initialisers

import "context"

// Initialiser prepares the host for one container type. All methods are
// idempotent; errors carry a kind of package fault.
type Initialiser interface {
	// Satisfied says, without changing anything and without any call to the
	// package manager, whether Initialise has nothing to do; if not, why.
	Satisfied(ctx context.Context) (bool, string)
	// Supported says whether this host can run the type at all, and if not
	// why and how to mend it.
	Supported(ctx context.Context) (bool, string)
	// Initialise brings the host to the wanted state. The caller holds the
	// host lock. progress receives plain sentences ("installing lxd").
	Initialise(ctx context.Context, progress func(string)) error
}

// NotAnswering is part of why an Initialiser is not Satisfied whose hypervisor
// is there and does not answer; behind a "; " stands how to start it.
const NotAnswering = "does not answer"
