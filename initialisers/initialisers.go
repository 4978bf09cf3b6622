// Package initialisers prepares a host for a container type: packages, daemon,
// first configuration. It has a subpackage for each type, such as
// initialisers/lxd.
package initialisers

import "context"

// Initialiser prepares the host for one container type. All methods are
// idempotent; errors carry a kind of package fault.
type Initialiser interface {
	// Satisfied reports whether Initialise has nothing to do; if it has, the
	// text says why. Satisfied changes nothing and does not call the package
	// manager.
	Satisfied(ctx context.Context) (bool, string)
	// Supported reports whether this host can run the type at all. If not, the
	// text gives the reason and the remedy.
	Supported(ctx context.Context) (bool, string)
	// Initialise brings the host to the wanted state. The caller holds the host
	// lock. progress receives plain sentences, e.g. "installing lxd".
	Initialise(ctx context.Context, progress func(string)) error
}

// Describer is an Initialiser of a type whose guests run in different ways.
type Describer interface {
	// Guests returns how guests run on this host, for `hostler doctor`, and the
	// remedy if they could run better.
	Guests() (how, mend string)
}

// NotAnswering is part of the text that Satisfied returns if the hypervisor
// exists but does not answer. The command that starts it follows after "; ".
const NotAnswering = "does not answer"
