// Package paths holds every path and every command name that hostler uses.
package paths

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
)

// The default folders of an agent.
const (
	DefaultConfig   = "/etc/hostler/hostler.yaml"
	DefaultStateDir = "/var/lib/hostler"
	DefaultRunDir   = "/run/hostler"
	// TempSuffix is the end of the name of every temporary file; see atomicfile.
	TempSuffix = ".hostler-tmp"
)

// Paths holds the paths of an agent. Root is a prefix of the host's paths. It
// is empty on a real host and a folder in tests. The other fields are full
// paths, without Root.
type Paths struct {
	Root     string
	Config   string
	StateDir string
	RunDir   string
	// Used are the folders of the hypervisors that are known to have machines.
	Used []string
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

// Existing returns path, or its nearest parent folder that exists.
func Existing(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// ConfD is the folder of the documents that the agent reads at its start and
// after a change. It is beside the configuration file.
func (p Paths) ConfD() string { return filepath.Join(filepath.Dir(p.Config), "conf.d") }

// Images is the folder of the content-addressed cache of images.
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

// Rootfs is a folder for filesystems on the host's own filesystem.
func (p Paths) Rootfs(part string) string { return filepath.Join(p.StateDir, "rootfs", part) }

// Mounts is a folder of mounts. part is host or rootfs for mounts of the host
// itself, and machines for mounts of machines.
func (p Paths) Mounts(part string) string { return filepath.Join(p.StateDir, "mounts", part) }

// SubUIDs lists the host's user ids that its guests may have.
func (p Paths) SubUIDs() string { return p.Host("/etc/subuid") }

// SubGIDs lists the host's group ids that its guests may have.
func (p Paths) SubGIDs() string { return p.Host("/etc/subgid") }

// SysctlState records the values that kernel parameters had before hostler.
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

// NetworkMark records that hostler has set up libvirt's network. From then on,
// the administrator decides whether to stop or remove the network.
func (p Paths) NetworkMark() string { return filepath.Join(p.StateDir, "kvm-network") }

// PoolMark holds the path of the pool that hostler made for LXC. A pool that is
// not there anymore is on a filesystem that is not mounted, or was removed.
func (p Paths) PoolMark() string { return filepath.Join(p.StateDir, "lxc-pool") }

// Socket is the API's socket.
func (p Paths) Socket() string { return filepath.Join(p.RunDir, "hostler.sock") }

// HostLock is held during changes of the whole host, e.g. of packages, daemons
// and their first configuration. All agents of a host share this lock, no
// matter which folders they use.
func (p Paths) HostLock() string { return p.Host("/run/hostler/lock/host") }

// Claim is the lock that the only agent of a namespace on a hypervisor holds,
// no matter which folders the agent uses. device and inode identify the
// directory of the hypervisor's socket.
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

// CloudInit holds the files by which cloud-init shows its state since boot.
func (p Paths) CloudInit() string { return p.Host("/run/cloud-init") }

// OSRelease names the distribution and its release.
func (p Paths) OSRelease() string { return p.Host("/etc/os-release") }

// SystemdRunning is a path that exists if and only if systemd is PID 1.
func (p Paths) SystemdRunning() string { return p.Host("/run/systemd/system") }

// DebianLXDDir is the state folder of LXD in Debian's package.
const DebianLXDDir = "/var/lib/lxd"

// SnapLXDDir is the state folder of the LXD in the snap. SnapLXDUnit is its unit.
const (
	SnapLXDDir  = "/var/snap/lxd/common/lxd"
	SnapLXDUnit = "snap.lxd.daemon.service"
)

// DebianLXDLog is the log of LXD in Debian's package.
const DebianLXDLog = "/var/log/lxd/lxd.log"

// The state folder and the log of Incus in Debian's package.
const (
	DebianIncusDir = "/var/lib/incus"
	DebianIncusLog = "/var/log/incus/incus.log"
)

// lxdSocket returns the socket in a state folder of LXD or Incus.
func lxdSocket(dir string) string { return filepath.Join(dir, "unix.socket") }

// FindLXDSocket returns the path of LXD's socket, or "" if there is none. dir
// is the value of LXD_DIR. If dir is empty, FindLXDSocket looks in the snap's
// folder and then in Debian's, but first in the one that has machines. It does
// not check whether LXD listens on the socket.
func (p Paths) FindLXDSocket(dir string) string {
	return p.findSocket(dir, SnapLXDDir, DebianLXDDir)
}

// FindIncusSocket returns the path of Incus's socket, in the same way as
// FindLXDSocket. dir is the value of INCUS_DIR.
func (p Paths) FindIncusSocket(dir string) string { return p.findSocket(dir, DebianIncusDir) }

func (p Paths) findSocket(dir string, usual ...string) string {
	folders := []string{dir}
	if dir == "" {
		folders = usual
		for i, folder := range folders {
			folders[i] = p.Host(folder)
		}
		used := slices.DeleteFunc(slices.Clone(folders), func(folder string) bool { return !slices.Contains(p.Used, folder) })
		folders = append(used, folders...)
	}
	for _, folder := range folders {
		if info, err := os.Stat(lxdSocket(folder)); err == nil && info.Mode().Type() == os.ModeSocket {
			return lxdSocket(folder)
		}
	}
	return ""
}

// LibvirtSocket is libvirt's socket.
func (p Paths) LibvirtSocket() string { return p.Host("/run/libvirt/libvirt-sock") }

// LibvirtImages is the folder of libvirt's default storage pool. LibvirtPools
// is the parent folder of other pools.
const (
	LibvirtImages = "/var/lib/libvirt/images"
	LibvirtPools  = "/var/lib/libvirt/pools/"
)

// Accelerator records how KVM guests run on this host. The file is lost when
// the host restarts. Its mode allows the provisioner to read it.
func (p Paths) Accelerator() string { return filepath.Join(p.RunDir, "kvm-accelerator") }

// The programs that hostler runs.
const (
	AptGet      = "/usr/bin/apt-get"
	Dpkg        = "/usr/bin/dpkg"
	Systemctl   = "/usr/bin/systemctl"
	AptCache    = "/usr/bin/apt-cache"
	LXD         = "/usr/bin/lxd"
	Incus       = "/usr/libexec/incus/incusd"
	SnapLXD     = "/snap/bin/lxd"
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
	Cp          = "/bin/cp"
	Tar         = "/bin/tar"
	IP          = "/sbin/ip"
	Nsenter     = "/usr/bin/nsenter"
	Setsid      = "/usr/bin/setsid"
	Unsquashfs  = "/usr/bin/unsquashfs"
	LXCStart    = "/usr/bin/lxc-start"
	LXCStop     = "/usr/bin/lxc-stop"
	LXCUnfreeze = "/usr/bin/lxc-unfreeze"
	LXCAttach   = "/usr/bin/lxc-attach"
	LXCCgroup   = "/usr/bin/lxc-cgroup"
	NewUIDMap   = "/usr/bin/newuidmap"
	NewGIDMap   = "/usr/bin/newgidmap"
	Mount       = "/bin/mount"
	// AppArmorParser loads profiles.
	AppArmorParser = "/sbin/apparmor_parser"
	SystemdEscape  = "/usr/bin/systemd-escape"
	MkfsExt4       = "/sbin/mkfs.ext4"
	MkfsXfs        = "/sbin/mkfs.xfs"
	MkfsBtrfs      = "/sbin/mkfs.btrfs"
	E2fsck         = "/sbin/e2fsck"
	XfsRepair      = "/sbin/xfs_repair"
	Btrfs          = "/bin/btrfs"
	Resize2fs      = "/sbin/resize2fs"
	XfsGrowfs      = "/usr/sbin/xfs_growfs"
	Networkctl     = "/usr/bin/networkctl"
	Nmcli          = "/usr/bin/nmcli"
	Dhclient       = "/usr/sbin/dhclient"
	Dhcpcd         = "/usr/sbin/dhcpcd"
	Sh             = "/bin/sh"
	Hostlerd       = "/usr/bin/hostlerd"
)
