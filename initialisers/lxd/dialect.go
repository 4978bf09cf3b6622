package lxd

import (
	"net/netip"

	"hostler/internal/paths"
	"hostler/packaging"
)

// Dialect holds the differences between LXD and Incus.
type Dialect struct {
	// Name is the daemon's name in messages. Command is its command line
	// client.
	Name, Command string
	// Type is the container type. It also appears in keys of hostler.yaml and
	// names the owner of the kernel parameters.
	Type string
	// Program is the daemon's path. Variable is the environment variable that
	// names its state folder. folder and log are the state folder and the log
	// file of Debian's package.
	Program, Variable string
	folder, log       string
	// FindSocket returns the path of the socket in the folder dir or, if dir is
	// empty, in the usual places. It returns "" if there is none.
	FindSocket func(p paths.Paths, dir string) string
	// socket and service are the systemd units of Debian's package. Members of
	// group have access to the socket.
	socket, service, group string
	// bridge is the prefix of the daemon's bridge names. The search for a new
	// bridge's subnet begins at subnet.
	bridge string
	subnet netip.Addr
	// packages are the packages to install. own is the package among them that
	// contains the daemon, and former the package that contained it before, or
	// "" if there is none. snap is the folder of the daemon's snap, or "" if
	// there is no such snap.
	packages          packaging.Sets
	own, former, snap string
}

// The dialects of LXD and Incus. They search for subnets in different ranges,
// so that a daemon does not take a subnet that belongs to the other daemon and
// is not in use at the moment.
var (
	LXD = Dialect{
		Name: "LXD", Command: "lxc", Type: "lxd",
		Program: paths.LXD, Variable: "LXD_DIR", folder: paths.DebianLXDDir, log: paths.DebianLXDLog, FindSocket: paths.Paths.FindLXDSocket,
		socket: "lxd.socket", service: "lxd.service", group: "lxd",
		bridge: "lxdbr", subnet: netip.MustParseAddr("10.184.0.0"),
		packages: lxdPackages, own: "lxd", snap: paths.SnapLXD,
	}
	Incus = Dialect{
		Name: "Incus", Command: "incus", Type: "incus",
		Program: paths.Incus, Variable: "INCUS_DIR", folder: paths.DebianIncusDir, log: paths.DebianIncusLog, FindSocket: paths.Paths.FindIncusSocket,
		socket: "incus.socket", service: "incus.service", group: "incus-admin",
		bridge: "incusbr", subnet: netip.MustParseAddr("10.185.0.0"),
		packages: incusPackages, own: "incus-base", former: "incus",
	}
)

// RootDiskNotice returns the key of the notice that root disks have no limits.
func (l Dialect) RootDiskNotice() string { return "root disks of " + l.Type + " machines" }
