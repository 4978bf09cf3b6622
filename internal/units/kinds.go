package units

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler/internal/run"
)

// prefix begins the names of all units.
const prefix = "hostler-"

// endsWithin is the time between SIGTERM and SIGKILL at the end of a unit.
// packagesEnd is this time for the installation of packages. It is long,
// because an interrupted dpkg leaves packages half installed.
const (
	endsWithin  = 5 * time.Second
	packagesEnd = 10 * time.Minute
)

// Kind is a kind of work, with its privileges.
type Kind struct {
	name, description string
	// single is true if all commands share the unit's name, so that only one of
	// them runs at a time.
	single bool
	// daemons is true if processes that the command leaves behind continue to
	// run.
	daemons bool
	end     time.Duration
	// full is true if the unit has all of root's rights. The command starts
	// programs that must not inherit restrictions. The other fields below have
	// no effect then.
	full bool
	// capabilities are the only capabilities of the unit.
	capabilities []int
	// families are the only address families of the unit's sockets.
	families []string
	// namespaces are the only kinds of namespaces that the unit can create, as
	// flags of unshare(2).
	namespaces uint64
	// writes returns the directories that the unit can write to. The unit sees
	// the host's other files read-only. If writes is nil, the unit sees the
	// host's files as the agent does.
	writes func(c run.Command) []string
	more   []dbus.Property
}

// networks are the address families of programs that use the network and
// netlink.
var networks = []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}

// The kinds of work. docs/ARCHITECTURE.md gives the reasons for their
// capabilities.
var (
	// Apt installs packages, whose scripts may need almost any privilege on the
	// host.
	Apt = Kind{
		name: "apt", description: "installs packages", single: true, daemons: true, end: packagesEnd,
		capabilities: []int{
			unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
			unix.CAP_MAC_ADMIN, unix.CAP_MKNOD, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SETFCAP,
			unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE,
		},
		families:   networks,
		namespaces: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWUSER,
		more:       limits,
	}
	// Image builds an image. All files of its commands are in the commands'
	// working directory.
	Image = Kind{
		name: "image", description: "builds an image",
		capabilities: []int{
			unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
			unix.CAP_MKNOD, unix.CAP_SETFCAP, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT,
		},
		families:   networks,
		namespaces: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		writes:     func(c run.Command) []string { return []string{c.Dir} },
		more:       append([]dbus.Property{property("KillSignal", int32(unix.SIGKILL)), property("ProtectKernelModules", true)}, limits...),
	}
	// Scan reads an image as a user without rights.
	Scan = Kind{
		name: "scan", description: "checks an image",
		capabilities: []int{unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_ADMIN},
		families:     []string{"AF_UNIX"},
		namespaces:   unix.CLONE_NEWIPC,
		writes:       none,
		more:         append([]dbus.Property{property("PrivateNetwork", true), property("PrivateDevices", true)}, kernel...),
	}
	// Users makes a user namespace.
	Users = Kind{
		name: "users", description: "makes a user namespace for a guest's ids",
		capabilities: []int{unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID},
		families:     []string{"AF_UNIX"},
		namespaces:   unix.CLONE_NEWUSER,
		writes:       none,
		more:         []dbus.Property{property("PrivateNetwork", true), property("PrivateDevices", true), property("RestrictSUIDSGID", true)},
	}
	// DNSMasq is a network's DHCP and DNS server. It writes to the directory of
	// its log.
	DNSMasq = Kind{
		name: "dnsmasq", description: "DHCP and DNS server",
		capabilities: []int{
			unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SETGID, unix.CAP_SETUID,
		},
		families: networks,
		writes:   func(c run.Command) []string { return []string{filepath.Dir(c.Detach)} },
		more:     append([]dbus.Property{property("PrivateDevices", true), property("UMask", uint32(0o077))}, kernel...),
	}
	// DHClient renews the lease of a host's NIC.
	DHClient = Kind{
		name: "dhclient", description: "renews a DHCP lease", daemons: true,
		capabilities: []int{
			unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN,
		},
		families: append([]string{"AF_PACKET"}, networks...),
	}
	// DHCPCD renews the lease of a host's NIC too. It separates its privileges
	// into several processes.
	DHCPCD = Kind{
		name: "dhcpcd", description: "renews a DHCP lease", daemons: true,
		capabilities: []int{
			unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE,
			unix.CAP_NET_RAW, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT,
		},
		families: append([]string{"AF_PACKET"}, networks...),
	}
	// Grow grows a mounted filesystem.
	Grow = Kind{
		name: "grow", description: "grows a filesystem",
		capabilities: []int{unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE},
		families:     []string{"AF_UNIX"},
		more:         []dbus.Property{property("PrivateNetwork", true), property("RestrictSUIDSGID", true)},
	}
	// Trial runs a guest to try KVM.
	Trial = Kind{
		name: "kvm-trial", description: "tries whether KVM runs a guest", single: true,
		capabilities: []int{unix.CAP_DAC_OVERRIDE},
		families:     []string{"AF_UNIX"},
		writes:       none,
		more:         append([]dbus.Property{property("PrivateNetwork", true)}, kernel...),
	}
	// Guests works on containers that run without a daemon. Whatever it starts
	// inherits its restrictions, so it has none.
	Guests = Kind{name: "guests", description: "works on containers", daemons: true, full: true}
)

func none(run.Command) []string { return nil }

// limits are the same limits as in hostlerd.service. Above MemoryHigh, the
// kernel slows a unit down and reclaims its memory.
var limits = []dbus.Property{property("MemoryHigh", uint64(2<<30)), property("TasksMax", uint64(4096))}

// kernel protects the kernel's settings, logs and modules.
var kernel = []dbus.Property{
	property("ProtectControlGroups", true), property("ProtectKernelLogs", true), property("ProtectKernelModules", true),
	property("ProtectKernelTunables", true), property("RestrictSUIDSGID", true),
}

// deniedCalls are the system calls that no kind needs.
var deniedCalls = []string{"@clock", "@cpu-emulation", "@debug", "@module", "@obsolete", "@raw-io", "@reboot", "@swap"}

// listed is systemd's type for a list whose entries are allowed or denied.
type listed struct {
	Allow bool
	Names []string
}

// unit returns the name of the unit for a command.
func (k Kind) unit(job string) string {
	name := prefix + k.name
	switch {
	case k.single:
	case job != "":
		name += "-" + strings.Map(plain, job)
	default:
		token := make([]byte, 4)
		_, _ = rand.Read(token) // never fails
		name += "-" + hex.EncodeToString(token)
	}
	return name + ".service"
}

// stem returns the name of a service without its type.
func stem(unit string) string { return strings.TrimSuffix(unit, ".service") }

// numbered returns the n-th alternative name of a unit, for use when the first
// name is taken. No other job has that name, because plain() removes colons
// from job names.
func numbered(unit string, n int) string { return stem(unit) + ":" + strconv.Itoa(n) + ".service" }

// plain returns r if it is allowed in the name of a unit, or else an
// underscore.
func plain(r rune) rune {
	if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_.", r)) {
		return r
	}
	return '_'
}

// all returns the properties of a command's unit, except for the properties
// that start its program.
func (k Kind) all(c run.Command) []dbus.Property {
	var set uint64
	for _, capability := range k.capabilities {
		set |= 1 << capability
	}
	end, kill := k.end, "control-group"
	end = cmp.Or(end, endsWithin)
	if k.daemons {
		kill = "process"
	}
	description := "hostler: " + k.description
	if c.Job != "" {
		description += " (" + c.Job + ")"
	}
	all := []dbus.Property{
		dbus.PropDescription(description), dbus.PropType("exec"),
		property("CollectMode", "inactive-or-failed"),
		property("KillMode", kill), property("TimeoutStopUSec", micros(end)),
		property("OOMPolicy", "continue"),
	}
	if k.full {
		return all
	}
	all = append(all,
		property("LimitCORE", uint64(0)),
		property("CapabilityBoundingSet", set),
		property("KeyringMode", "private"),
		property("LockPersonality", true),
		property("NoNewPrivileges", true),
		property("ProtectHostname", true),
		property("RestrictAddressFamilies", listed{true, k.families}),
		property("RestrictNamespaces", k.namespaces),
		property("RestrictRealtime", true),
		property("SystemCallArchitectures", []string{"native"}),
		property("SystemCallErrorNumber", int32(unix.EPERM)),
		property("SystemCallFilter", listed{false, deniedCalls}),
	)
	if k.writes != nil {
		all = append(all, property("ProtectSystem", "strict"), property("ProtectHome", "read-only"), property("PrivateTmp", true),
			property("ReadWritePaths", append([]string{}, k.writes(c)...)))
	}
	return append(all, k.more...)
}

// scopeOf returns the properties of a scope that ends a process.
func scopeOf(pid int) []dbus.Property {
	return []dbus.Property{
		dbus.PropDescription("hostler: ends a process"), dbus.PropPids(uint32(pid)),
		property("TimeoutStopUSec", micros(endsWithin)), property("CollectMode", "inactive-or-failed"),
	}
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

func micros(d time.Duration) uint64 { return uint64(d.Microseconds()) }
