//go:build integration && long

package machines

import "hostler/containerbroker/lxd/lxdtest"

// ofIncus names the behaviours that are tried on Incus; none means all.
var ofIncus []string

// drifting are the daemons whose machines another client changes.
var drifting = []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus}
