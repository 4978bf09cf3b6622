// Package paths holds every path and every command name that hostler uses.
package paths

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// The default folders of an agent.
const (
	DefaultConfig   = "/etc/hostler/hostler.yaml"
	DefaultStateDir = "/var/lib/hostler"
	DefaultRunDir   = "/run/hostler"
	// TempSuffix ends the name of every temporary file; see atomicfile.
	TempSuffix = ".hostler-tmp"
)

// Paths holds the paths of an agent. Root is a prefix of the host's paths:
// empty on a real host, a folder in tests. The agent's own folders are given in
// full, without Root.
type Paths struct {
	Root     string
	Config   string
	StateDir string
	RunDir   string
}

// New returns the paths of an agent with the given configuration file and
// folders. An empty argument means the default, below root.
func New(root, config, stateDir, runDir string) Paths {
	orDefault := func(path, fallback string) string {
		if path != "" {
			return path
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

// ConfD holds the declarations that the agent reads at its start and after a
// change. It stands beside the configuration file.
func (p Paths) ConfD() string { return filepath.Join(filepath.Dir(p.Config), "conf.d") }

// Images is the content-addressed cache.
func (p Paths) Images() string { return filepath.Join(p.StateDir, "images") }

// Consoles is the folder of saved console logs.
func (p Paths) Consoles() string { return filepath.Join(p.StateDir, "consoles") }

// Volumes holds the data of loop volumes.
func (p Paths) Volumes() string { return filepath.Join(p.StateDir, "volumes") }

// Filesystems holds the records of a source (tmpfs, managed) about its
// filesystems.
func (p Paths) Filesystems(source string) string {
	return filepath.Join(p.StateDir, "filesystems", source)
}

// Rootfs holds the filesystems that are parts of the host's own filesystem.
func (p Paths) Rootfs(part string) string { return filepath.Join(p.StateDir, "rootfs", part) }

// Mounts is the folder of all mounts: those of the host itself (host, rootfs)
// and those of machines (machines).
func (p Paths) Mounts(part string) string { return filepath.Join(p.StateDir, "mounts", part) }

// SubUIDs lists the host's user ids that its guests may have.
func (p Paths) SubUIDs() string { return p.Host("/etc/subuid") }

// SubGIDs is SubUIDs for groups.
func (p Paths) SubGIDs() string { return p.Host("/etc/subgid") }

// SysctlState remembers the kernel parameters' values from before hostler.
func (p Paths) SysctlState() string { return filepath.Join(p.StateDir, "sysctl.json") }

// DHCP holds the files of each network's DHCP server, in a folder per network's
// uid; see DHCPServer. The leases survive a restart of the host.
func (p Paths) DHCP() string { return filepath.Join(p.StateDir, "dhcp") }

// DHCPServer holds the files of the DHCP server of the network with the uid.
func (p Paths) DHCPServer(uid string) string { return filepath.Join(p.DHCP(), uid) }

// Guard holds the files of the guard, which reverts a change of the host's own
// network: the checkpoint, and the result of the last change.
func (p Paths) Guard() string { return filepath.Join(p.StateDir, "guard") }

// WatchdogLog is the log of a watchdog that is not a unit of systemd.
func (p Paths) WatchdogLog() string { return filepath.Join(p.Guard(), "watchdog.log") }

// NetworkMark records that hostler set up libvirt's network once. After that
// the administrator decides whether to stop or remove it.
func (p Paths) NetworkMark() string { return filepath.Join(p.StateDir, "kvm-network") }

// Socket is the API's socket.
func (p Paths) Socket() string { return filepath.Join(p.RunDir, "hostler.sock") }

// HostLock is held during changes of the whole host: packages, daemons, first
// configuration. All agents of a host share it, whatever their own folders.
func (p Paths) HostLock() string { return p.Host("/run/hostler/lock/host") }

// Claim is held by the only agent of a namespace on a hypervisor, whatever the
// agent's own folders. device and inode identify the directory of the
// hypervisor's socket.
func (p Paths) Claim(hypervisor string, device, inode uint64, namespace string) string {
	return p.Host(fmt.Sprintf("/run/hostler/lock/agent-%s-%x-%x-%s", hypervisor, device, inode, url.PathEscape(namespace)))
}

// SysctlDropIn is the sysctl.d file that hostler owns.
func (p Paths) SysctlDropIn() string { return p.Host("/etc/sysctl.d/60-hostler.conf") }

// ProcSys is the folder of the kernel's parameters.
func (p Paths) ProcSys() string { return p.Host("/proc/sys") }

// DpkgStatus is dpkg's record of installed packages.
func (p Paths) DpkgStatus() string { return p.Host("/var/lib/dpkg/status") }

// DpkgUpdates holds dpkg's journal. Files in it show an interrupted run.
func (p Paths) DpkgUpdates() string { return p.Host("/var/lib/dpkg/updates") }

// PackageLocks are the lock files of apt and dpkg, in the order in which apt
// takes them.
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

// SystemdRunning exists if and only if systemd is PID 1.
func (p Paths) SystemdRunning() string { return p.Host("/run/systemd/system") }

// lxdDirs are the folders that may hold LXD's socket, in the order of the
// search: the value of the environment variable LXD_DIR (the argument), the
// snap's folder, Debian's folder.
func (p Paths) lxdDirs(lxdDir string) []string {
	if lxdDir != "" {
		return []string{lxdDir}
	}
	return []string{p.Host("/var/snap/lxd/common/lxd"), p.Host(DebianLXDDir)}
}

// DebianLXDDir is the state folder of LXD in Debian's package.
const DebianLXDDir = "/var/lib/lxd"

// DebianLXDLog is the log of LXD in Debian's package.
const DebianLXDLog = "/var/log/lxd/lxd.log"

// LXDSocket returns the socket in a folder of lxdDirs.
func LXDSocket(dir string) string { return filepath.Join(dir, "unix.socket") }

// FindLXDSocket returns the first socket in lxdDirs, "" without any. LXD need
// not listen on it.
func (p Paths) FindLXDSocket(lxdDir string) string {
	for _, dir := range p.lxdDirs(lxdDir) {
		if info, err := os.Stat(LXDSocket(dir)); err == nil && info.Mode().Type() == os.ModeSocket {
			return LXDSocket(dir)
		}
	}
	return ""
}

// LibvirtSocket is libvirt's socket.
func (p Paths) LibvirtSocket() string { return p.Host("/run/libvirt/libvirt-sock") }

// The folders of libvirt's storage pools: its default pool, and the parent of
// others.
const (
	LibvirtImages = "/var/lib/libvirt/images"
	LibvirtPools  = "/var/lib/libvirt/pools/"
)

// Accelerator records how KVM guests run on this host. The file is lost at a
// restart of the host; the provisioner may read it.
func (p Paths) Accelerator() string { return filepath.Join(p.RunDir, "kvm-accelerator") }

// The programs that hostler runs.
const (
	AptGet      = "/usr/bin/apt-get"
	Dpkg        = "/usr/bin/dpkg"
	Systemctl   = "/usr/bin/systemctl"
	LXD         = "/usr/bin/lxd"
	Mmdebstrap  = "/usr/bin/mmdebstrap"
	Mksquashfs  = "/usr/bin/mksquashfs"
	Unshare     = "/usr/bin/unshare"
	QemuImg     = "/usr/bin/qemu-img"
	Libvirtd    = "/usr/sbin/libvirtd"
	Virtlogd    = "/usr/sbin/virtlogd"
	GrubMkimage = "/usr/bin/grub-mkimage"
	GrubModules = "/usr/lib/grub/i386-pc"
	Nft         = "/usr/sbin/nft"
	Dnsmasq     = "/usr/sbin/dnsmasq"
	Busybox     = "/bin/busybox"
	Cat         = "/bin/cat"
	MkfsExt4    = "/sbin/mkfs.ext4"
	MkfsXfs     = "/sbin/mkfs.xfs"
	MkfsBtrfs   = "/sbin/mkfs.btrfs"
	E2fsck      = "/sbin/e2fsck"
	XfsRepair   = "/sbin/xfs_repair"
	Btrfs       = "/bin/btrfs"
	Resize2fs   = "/sbin/resize2fs"
	XfsGrowfs   = "/usr/sbin/xfs_growfs"
	Networkctl  = "/usr/bin/networkctl"
	Dhclient    = "/usr/sbin/dhclient"
	Hostlerd    = "/usr/bin/hostlerd"
)
