//go:build integration && !long

package machines

import (
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/behaviour"
)

// ofIncus names the behaviours that are tried on Incus; none means all.
var ofIncus = behaviour.Sample

// ofLXC names the behaviours that are tried on classic LXC.
var ofLXC = behaviour.Sample

// mixing are the types of machines that share a bridge.
var mixing = []string{"lxd", "lxc"}

// drifting are the daemons whose machines another client changes.
var drifting = []lxdtest.Daemon{lxdtest.Incus}
