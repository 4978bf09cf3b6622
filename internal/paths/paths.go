// Package paths knows every path and every command name that hostler uses.
package paths

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// The folders of an agent that was told nothing else.
const (
	DefaultConfig   = "/etc/hostler/hostler.yaml"
	DefaultStateDir = "/var/lib/hostler"
	DefaultRunDir   = "/run/hostler"
	LogDir          = "/var/log/hostler"
	SocketEnv       = "HOSTLER_SOCKET"
	// TempSuffix ends the name of every temporary file; see atomicfile.
	TempSuffix = ".hostler-tmp"
)

// Paths holds the places of one agent. Root is put before the paths of the
// host itself (not before the agent's own folders, which are given whole):
// empty on a real host, a folder in tests.
type Paths struct {
	Root     string
	Config   string
	StateDir string
	RunDir   string
}

// Default returns the places of the host's first agent.
func Default() Paths { return New("", DefaultConfig, DefaultStateDir, DefaultRunDir) }

// New returns the places of an agent with the given configuration file and
// folders; empty ones are the defaults, put under root.
func New(root, config, stateDir, runDir string) Paths {
	orDefault := func(given, fallback string) string {
		if given != "" {
			return given
		}
		return filepath.Join("/", root, fallback)
	}
	return Paths{
		Root:     root,
		Config:   orDefault(config, DefaultConfig),
		StateDir: orDefault(stateDir, DefaultStateDir),
		RunDir:   orDefault(runDir, DefaultRunDir),
	}
}

// Host returns a path of the host, below Root.
func (p Paths) Host(path string) string { return filepath.Join("/", p.Root, path) }

// ConfD holds declarations that the agent reads at start and on change; it
// stands beside the configuration file.
func (p Paths) ConfD() string { return filepath.Join(filepath.Dir(p.Config), "conf.d") }

// Store is the database; Identity tells an empty store from a lost one.
func (p Paths) Store() string { return filepath.Join(p.StateDir, "store.db") }

// Identity is the file that names the store and counts its generations.
func (p Paths) Identity() string { return filepath.Join(p.StateDir, "store-id") }

// Images is the content-addressed cache.
func (p Paths) Images() string { return filepath.Join(p.StateDir, "images") }

// Consoles is the folder of what is kept of instances' console logs.
func (p Paths) Consoles() string { return filepath.Join(p.StateDir, "consoles") }

// Volumes holds the data of loop volumes.
func (p Paths) Volumes() string { return filepath.Join(p.StateDir, "volumes") }

// Filesystems holds what a source (tmpfs, managed) keeps of its filesystems.
func (p Paths) Filesystems(source string) string {
	return filepath.Join(p.StateDir, "filesystems", source)
}

// Rootfs holds the filesystems that are parts of the host's own.
func (p Paths) Rootfs(part string) string { return filepath.Join(p.StateDir, "rootfs", part) }

// Mounts is the folder below which everything is mounted: what the host itself
// uses (host, rootfs) and what machines see (machines).
func (p Paths) Mounts(part string) string { return filepath.Join(p.StateDir, "mounts", part) }

// SubUIDs and SubGIDs say what ids of the host its guests may have.
func (p Paths) SubUIDs() string { return p.Host("/etc/subuid") }

// SubGIDs is SubUIDs for groups.
func (p Paths) SubGIDs() string { return p.Host("/etc/subgid") }

// SysctlState remembers the kernel parameters' values from before hostler.
func (p Paths) SysctlState() string { return filepath.Join(p.StateDir, "sysctl.json") }

// DHCP holds the files of each network's DHCP server, DHCPServer those of one
// by the network's uid: the leases outlive the host's restart.
func (p Paths) DHCP() string { return filepath.Join(p.StateDir, "dhcp") }

// DHCPServer see DHCP.
func (p Paths) DHCPServer(uid string) string { return filepath.Join(p.DHCP(), uid) }

// Guard holds what keeps a change of the host's own network from locking
// people out: the checkpoint, and what became of the last change.
func (p Paths) Guard() string { return filepath.Join(p.StateDir, "guard") }

// WatchdogLog is where the watchdog writes that is no unit of systemd.
func (p Paths) WatchdogLog() string { return filepath.Join(p.Guard(), "watchdog.log") }

// NetworkMark says that libvirt's network was set up; from then on it is a
// person's to stop or remove.
func (p Paths) NetworkMark() string { return filepath.Join(p.StateDir, "kvm-network") }

// Socket is the API's socket.
func (p Paths) Socket() string { return filepath.Join(p.RunDir, "hostler.sock") }

// AgentLock is held by the one agent that works on StateDir. It stands in a
// folder of its own below it, as hostlock wants.
func (p Paths) AgentLock() string { return filepath.Join(p.StateDir, "lock", "agent") }

// HostLock is held while host-wide things change: packages, daemons, first
// configuration. It is one per host, whatever the agent's own folders.
func (p Paths) HostLock() string { return p.Host("/run/hostler/lock/host") }

// Claim is held by the one agent of a namespace on the hypervisor whose socket
// is in the directory of that device and inode, whatever the agent's own folders.
func (p Paths) Claim(hypervisor string, device, inode uint64, namespace string) string {
	return p.Host(fmt.Sprintf("/run/hostler/lock/agent-%s-%x-%x-%s", hypervisor, device, inode, url.PathEscape(namespace)))
}

// SysctlDropIn is the one sysctl.d file that hostler owns.
func (p Paths) SysctlDropIn() string { return p.Host("/etc/sysctl.d/60-hostler.conf") }

// ProcSys is where the kernel's parameters are.
func (p Paths) ProcSys() string { return p.Host("/proc/sys") }

// DpkgStatus is dpkg's record of what is installed.
func (p Paths) DpkgStatus() string { return p.Host("/var/lib/dpkg/status") }

// DpkgUpdates holds dpkg's journal; files in it tell of an interrupted run.
func (p Paths) DpkgUpdates() string { return p.Host("/var/lib/dpkg/updates") }

// PackageLocks are the files that apt and dpkg lock, in the order in which
// apt takes them.
func (p Paths) PackageLocks() []string {
	return []string{
		p.Host("/var/lib/dpkg/lock-frontend"),
		p.Host("/var/lib/dpkg/lock"),
		p.Host("/var/lib/apt/lists/lock"),
		p.Host("/var/cache/apt/archives/lock"),
	}
}

// AptLists holds the package lists.
func (p Paths) AptLists() string { return p.Host("/var/lib/apt/lists") }

// OSRelease names the distribution and its release.
func (p Paths) OSRelease() string { return p.Host("/etc/os-release") }

// SystemdRunning exists exactly when systemd is PID 1.
func (p Paths) SystemdRunning() string { return p.Host("/run/systemd/system") }

// LXDDirs are the folders where LXD may keep its socket, in the order in
// which they are tried: the one named by the environment variable LXD_DIR
// (its value is given), the snap's, Debian's.
func (p Paths) LXDDirs(lxdDir string) []string {
	if lxdDir != "" {
		return []string{lxdDir}
	}
	return []string{p.Host("/var/snap/lxd/common/lxd"), p.Host(DebianLXDDir)}
}

// DebianLXDDir is where Debian's package keeps LXD's state.
const DebianLXDDir = "/var/lib/lxd"

// DebianLXDLog is where Debian's package keeps LXD's log.
const DebianLXDLog = "/var/log/lxd/lxd.log"

// LXDSocket returns the socket inside one of LXDDirs.
func LXDSocket(dir string) string { return filepath.Join(dir, "unix.socket") }

// FindLXDSocket returns the first socket found in LXDDirs, "" when there is
// none. Nothing listens on it for certain.
func (p Paths) FindLXDSocket(lxdDir string) string {
	for _, dir := range p.LXDDirs(lxdDir) {
		if info, err := os.Stat(LXDSocket(dir)); err == nil && info.Mode().Type() == os.ModeSocket {
			return LXDSocket(dir)
		}
	}
	return ""
}

// LibvirtSocket is libvirt's own.
func (p Paths) LibvirtSocket() string { return p.Host("/run/libvirt/libvirt-sock") }

// The folders of libvirt's storage pools: its own, and those beside it.
const (
	LibvirtImages = "/var/lib/libvirt/images"
	LibvirtPools  = "/var/lib/libvirt/pools/"
)

// Accelerator tells how KVM guests run on this host; it goes when the host
// boots, and may be read by the provisioner.
func (p Paths) Accelerator() string { return filepath.Join(p.RunDir, "kvm-accelerator") }

// The programs that hostler runs.
const (
	AptGet       = "/usr/bin/apt-get"
	AptCache     = "/usr/bin/apt-cache"
	Dpkg         = "/usr/bin/dpkg"
	Systemctl    = "/usr/bin/systemctl"
	LXD          = "/usr/bin/lxd"
	LXDAppArmor  = "/usr/libexec/lxd/lxd-apparmor-load"
	Mmdebstrap   = "/usr/bin/mmdebstrap"
	Mksquashfs   = "/usr/bin/mksquashfs"
	Unsquashfs   = "/usr/bin/unsquashfs"
	Unshare      = "/usr/bin/unshare"
	QemuImg      = "/usr/bin/qemu-img"
	Libvirtd     = "/usr/sbin/libvirtd"
	Virtlogd     = "/usr/sbin/virtlogd"
	GrubMkimage  = "/usr/bin/grub-mkimage"
	GrubModules  = "/usr/lib/grub/i386-pc"
	Nft          = "/usr/sbin/nft"
	Dnsmasq      = "/usr/sbin/dnsmasq"
	Busybox      = "/bin/busybox"
	Cat          = "/bin/cat"
	MkfsExt4     = "/sbin/mkfs.ext4"
	MkfsXfs      = "/sbin/mkfs.xfs"
	MkfsBtrfs    = "/sbin/mkfs.btrfs"
	E2fsck       = "/sbin/e2fsck"
	XfsRepair    = "/sbin/xfs_repair"
	Btrfs        = "/bin/btrfs"
	Resize2fs    = "/sbin/resize2fs"
	XfsGrowfs    = "/usr/sbin/xfs_growfs"
	Networkctl   = "/usr/bin/networkctl"
	Dhclient     = "/usr/sbin/dhclient"
	HostlerdUnit = "hostlerd.service"
	Hostlerd     = "/usr/bin/hostlerd"
)
