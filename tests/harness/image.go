package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The packages of a test host: systemd as PID 1, a network, apt.
const hostPackages = "systemd-sysv,udev,dbus,iproute2,netbase,ca-certificates,procps,adduser"

const metadataTemplate = `architecture: x86_64
creation_date: 1
properties: {description: test host, os: OS, release: SUITE}
templates:
  /etc/hostname: {when: [create, copy], template: hostname.tpl}
  /etc/hosts: {when: [create, copy], template: hosts.tpl}
`

// Everything in the image that is not a package. The container's own DHCP
// brings no resolver, so the bridge's is named when a host starts. Ubuntu's
// qemu-kvm.service would make a /dev/kvm that the container may not open, and
// that libvirt cannot permit its guests.
const customise = `#!/bin/sh
set -e
cat >"$1/etc/systemd/network/20-eth.network" <<END
[Match]
Name=eth*
[Network]
DHCP=ipv4
LinkLocalAddressing=no
[DHCPv4]
ClientIdentifier=mac
END
chroot "$1" systemctl -q enable systemd-networkd
chroot "$1" systemctl -q mask systemd-networkd-wait-online.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-binfmt.service e2scrub_reap.service qemu-kvm.service
echo uninitialized >"$1/etc/machine-id"
rm -f "$1/var/lib/dbus/machine-id" "$1/var/cache/apt"/*.bin
`

// HostImage builds, once per clone, an image of the release with systemd for
// test hosts and returns its two files: metadata and squashfs.
func HostImage(t testing.TB, r Release) (meta, rootfs string) {
	t.Helper()
	metadata := strings.NewReplacer("OS", r.OS, "SUITE", r.Suite).Replace(metadataTemplate)
	packages := hostPackages
	if r.OS == "Ubuntu" {
		packages += ",apt,ubuntu-keyring" // not among the packages of the variant
	}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(packages+metadata+customise)))[:12]
	dir := filepath.Join(Root(t), ".cache", "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	meta, rootfs = filepath.Join(dir, key+".tar.xz"), filepath.Join(dir, key+".squashfs")
	if _, err := os.Stat(meta); err == nil {
		return meta, rootfs
	}
	work := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hook := write("customise", customise, 0o755)
	Run(t, "mmdebstrap", append([]string{
		"--variant=minbase", "--mode=root", "--include=" + packages,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		`--aptopt=Acquire::Languages "none"`, "--customize-hook=" + hook,
		"--keyring=" + r.Keyring(), "--format=directory", r.Suite, filepath.Join(work, "rootfs"),
	}, r.Mirrors(t)...)...)
	Run(t, "mksquashfs", filepath.Join(work, "rootfs"), filepath.Join(work, "rootfs.squashfs"), "-comp", "zstd", "-Xcompression-level", "3", "-no-progress", "-quiet")
	write("meta/metadata.yaml", metadata, 0o644)
	write("meta/templates/hostname.tpl", "{{ container.name }}\n", 0o644)
	write("meta/templates/hosts.tpl", "127.0.0.1 localhost\n127.0.1.1 {{ container.name }}\n", 0o644)
	Run(t, "tar", "-C", filepath.Join(work, "meta"), "-cJf", filepath.Join(work, "meta.tar.xz"), "metadata.yaml", "templates")
	// The metadata last: it is what says that the image is whole.
	Run(t, "mv", filepath.Join(work, "rootfs.squashfs"), rootfs)
	Run(t, "mv", filepath.Join(work, "meta.tar.xz"), meta)
	return meta, rootfs
}

// Mirrors lists, as lines of a sources.list, the Debian archives of the
// host's own apt configuration.
func Mirrors(t testing.TB) (lines []string) {
	t.Helper()
	out := Run(t, "apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.HasPrefix(fields[1], "bookworm") || fields[2] != "main" {
			continue
		}
		if source := "deb " + fields[0] + " " + fields[1] + " main"; !seen[source] {
			seen[source] = true
			lines = append(lines, source)
		}
	}
	if len(lines) == 0 {
		t.Fatal("cannot find a Debian archive in apt's configuration")
	}
	return lines
}
