//go:build integration

package vm_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// bare lists the packages of a small server without its kernel, and an agent
// that runs the test's commands. provided adds the packages that hostler and apt
// would install there for the image busybox/1 and a daemon for containers, which
// runningOn adds: for scenarios about something else, since emulated processors
// take minutes to unpack them. stock lists the packages of a cloud image:
// those of bare, cloud-init and the programs that its modules run.
const (
	bare     = "systemd-sysv,udev,dbus,iproute2,netbase,ca-certificates,procps,adduser,kmod,e2fsprogs,zstd,initramfs-tools,qemu-guest-agent"
	provided = bare + ",dnsmasq-base,apparmor,btrfs-progs,nftables,mmdebstrap,squashfs-tools,busybox-static"
	stock    = bare + ",cloud-init,openssh-server,sudo,lsb-release"
)

// daemon is the daemon for containers on the VM: the type of machines, its
// client and its packages.
type daemon struct{ kind, client, packages string }

// classic is classic LXC, which has no daemon.
var classic = daemon{"lxc", "", "lxc,uidmap"}

// runningOn returns a release's daemon.
func runningOn(r harness.Release) daemon {
	switch r.Name {
	case "debian/12", "debian/13":
		return daemon{"lxd", "lxc", "lxd,lxd-client"}
	case "ubuntu/24.04":
		return daemon{"incus", "incus", "incus"}
	}
	return daemon{"incus", "incus", "incus-base,incus-client"}
}

// beforeKernel keeps the initial RAM disk small: what a virtio disk with ext4
// needs.
const beforeKernel = `#!/bin/sh
set -e
mkdir -p "$1/etc/initramfs-tools/conf.d"
printf 'MODULES=list\nCOMPRESS=zstd\nRESUME=none\n' >"$1/etc/initramfs-tools/conf.d/test"
printf 'virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n' >"$1/etc/initramfs-tools/modules"
`

// afterPackages is everything in the disk that is not a package. 10.0.2.3 is
// the name server of QEMU's user-mode network. The machine's own clockwork
// (updates, trimming) would only make runs differ; unattended-upgrades has a
// scenario of its own. apt's index is made here, since that takes an emulated
// processor half a minute.
const afterPackages = `#!/bin/sh
set -e
cat >"$1/etc/systemd/network/20-eth.network" <<END
[Match]
Name=eth0
[Network]
DHCP=ipv4
LinkLocalAddressing=no
END
rm -f "$1/etc/resolv.conf"
echo nameserver 10.0.2.3 >"$1/etc/resolv.conf"
echo debian >"$1/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 debian\n' >"$1/etc/hosts"
echo 'LABEL=root / ext4 defaults,noatime,errors=remount-ro 0 1' >"$1/etc/fstab"
chroot "$1" systemctl -q enable systemd-networkd qemu-guest-agent
chroot "$1" systemctl -q mask systemd-networkd-wait-online.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer e2scrub_reap.service getty@tty1.service
[ ! -d "$1/etc/cloud" ] || printf 'apt: {preserve_sources_list: true}\nlocale: false\n' >"$1/etc/cloud/cloud.cfg.d/95-test.cfg"
: >"$1/etc/machine-id"
rm -f "$1/var/lib/dbus/machine-id" "$1/var/cache/apt/archives"/*.deb
chroot "$1" apt-cache gencaches
`

// diskSize of the machine, in GiB; the file holds only what is used.
const diskSize = 6

// base is a disk with the kernel and initial RAM disk that boot it.
type base struct {
	disk, kernel, initrd, key string

	daemon daemon
}

// baseDisk builds a disk of HostRelease with these packages, once per clone,
// without a mount or a loop device. A disk with the packages that are provided
// gets the release's daemon too.
func baseDisk(t *testing.T, packages string) base {
	t.Helper()
	return baseDiskOf(t, harness.HostRelease(t), packages)
}

func baseDiskOf(t *testing.T, r harness.Release, packages string) base {
	t.Helper()
	return baseDiskWith(t, r, runningOn(r), packages)
}

func baseDiskWith(t *testing.T, r harness.Release, d daemon, packages string) base {
	t.Helper()
	mirrors := r.Mirrors(t)
	if strings.HasPrefix(packages, provided) {
		packages += "," + d.packages
	}
	if r.OS == "Ubuntu" {
		packages += ",linux-image-virtual,apt,ubuntu-keyring"
	} else {
		packages += ",linux-image-cloud-amd64"
	}
	recipe := strings.Join(append(slices.Clone(mirrors), r.Name, packages, beforeKernel, afterPackages, fmt.Sprint(diskSize)), "\x00")
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(recipe)))[:12]
	dir := cache(t, "base-"+key)
	b := base{filepath.Join(dir, "root.qcow2"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd.img"), key, d}
	if _, err := os.Stat(dir); err == nil {
		return b
	}
	work := dir + ".new"
	fresh(t, work)
	root, image := filepath.Join(work, "root"), filepath.Join(work, "root.img")
	hook := func(name, script string) string {
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	harness.Run(t, "mmdebstrap", slices.Concat(r.AptOptions(t), []string{
		"--variant=minbase", "--mode=root", "--include=" + packages,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		`--aptopt=Acquire::Languages "none"`, "--skip=cleanup/apt/lists,cleanup/apt/cache",
		"--essential-hook=" + hook("before-kernel", beforeKernel), "--customize-hook=" + hook("after-packages", afterPackages),
		"--keyring=" + r.Keyring(), "--format=directory", r.Suite, root,
	}, mirrors)...)
	harness.Run(t, "sh", "-c", `cp "$1"/boot/vmlinuz-* "$2/vmlinuz" && cp "$1"/boot/initrd.img-* "$2/initrd.img"`, "sh", root, work)
	harness.Run(t, "truncate", "-s", fmt.Sprintf("%dG", diskSize), image)
	harness.Run(t, "mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, image)
	harness.Run(t, "qemu-img", "convert", "-O", "qcow2", image, filepath.Join(work, "root.qcow2"))
	harness.Run(t, "rm", "-rf", root, image)
	// The name comes last: what bears it is whole.
	if err := os.Rename(work, dir); err != nil {
		t.Fatal(err)
	}
	return b
}

// cache names a file or folder among what runs of this clone share.
func cache(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(harness.Root(t), ".cache", "vm", name)
}

// fresh makes an empty folder.
func fresh(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}
