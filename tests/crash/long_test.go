//go:build integration && long

package crash_test

import "hostler/containerbroker/lxd/lxdtest"

// long is whether the whole campaign runs, or a sample of it.
const long = true

// initialised are the daemons that agents start and configure.
var initialised = []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus}
