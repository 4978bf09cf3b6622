// Package initialisers prepares a host for a container type. It installs
// packages, starts the daemon and makes the first configuration. It has a
// subpackage for each kind of hypervisor, e.g. initialisers/lxd.
package initialisers

import "context"

// Initialiser prepares the host for one container type. All methods are
// idempotent; errors carry a kind of package fault.
type Initialiser interface {
	// Satisfied reports whether Initialise has nothing to do. If Initialise has
	// something to do, the text says why. Satisfied changes nothing and never
	// calls the package manager.
	Satisfied(ctx context.Context) (bool, string)
	// Supported reports whether this host can run guests of the type at all. If
	// it cannot, the text gives the reason and the remedy. If the hypervisor is
	// absent, Supported may ask the package manager which packages it offers.
	Supported(ctx context.Context) (bool, string)
	// Initialise brings the host to the wanted state. The caller holds the host
	// lock. progress receives plain sentences, e.g. "installing lxd".
	Initialise(ctx context.Context, progress func(string)) error
}

// Describer is an Initialiser of a type whose guests run in different ways.
type Describer interface {
	// Guests returns, for `hostler doctor`, how guests run on this host, and
	// the remedy if they could run better. how is "" if that is not known yet.
	Guests() (how, mend string)
}

// Pinger is an Initialiser of a type whose hypervisor is a daemon.
type Pinger interface {
	// Silent returns a message and the remedy if the hypervisor is installed
	// but does not answer. Otherwise both are "".
	Silent(ctx context.Context) (message, mend string)
}

// Adviser is an Initialiser of a type that hostler advises against on some
// hosts.
type Adviser interface {
	// Advice returns the advice for `hostler doctor`, or "".
	Advice() string
}
