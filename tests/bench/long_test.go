//go:build integration && long

package bench

import "hostler/containerbroker/lxd/lxdtest"

// counted are the daemons whose requests are counted.
var counted = []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus}
