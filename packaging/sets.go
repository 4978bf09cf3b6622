package packaging

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"hostler/internal/fault"
)

// Set is the packages for a purpose.
type Set struct {
	Names   []string
	Options Options
}

// Release is a distribution and its version, as in os-release(5).
type Release struct{ ID, Version string }

func (r Release) String() string { return strings.TrimSpace(r.ID + " " + r.Version) }

// The purposes that have a set.
const (
	ForLXD        = "lxd"
	ForKVM        = "kvm"
	ForImageBuild = "image-build"
	ForNetworks   = "networks"
	// ForFilesystems lists the tools of all types; callers install each when it
	// is needed.
	ForFilesystems = "filesystems"
)

// sets lists the packages for each purpose on each release. The package lxd
// recommends the DHCP server of its bridges and the loader of AppArmor
// profiles, which hostler needs, and an agent for virtual machines, which it
// does not need. btrfs-progs makes LXD's storage pools. On a host without
// iptables LXD needs nftables to make its bridges.
var sets = map[string]map[Release]Set{
	ForLXD: {
		{"debian", "12"}: {Names: []string{"lxd", "dnsmasq-base", "apparmor", "btrfs-progs", "nftables"}, Options: Options{NoRecommends: true}},
		{"debian", "13"}: {Names: []string{"lxd", "dnsmasq-base", "apparmor", "btrfs-progs", "nftables"}, Options: Options{NoRecommends: true}},
	},
	// dnsmasq-base is the program alone; the package dnsmasq would also start a
	// server at every address of the host.
	ForNetworks: {
		{"debian", "12"}:    {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
		{"debian", "13"}:    {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "22.04"}: {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "24.04"}: {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
	},
	ForFilesystems: {
		{"debian", "12"}:    {Names: filesystemPackages, Options: Options{NoRecommends: true}},
		{"debian", "13"}:    {Names: filesystemPackages, Options: Options{NoRecommends: true}},
		{"ubuntu", "22.04"}: {Names: filesystemPackages, Options: Options{NoRecommends: true}},
		{"ubuntu", "24.04"}: {Names: filesystemPackages, Options: Options{NoRecommends: true}},
	},
	ForKVM: {
		{"debian", "12"}: {Names: kvmPackages, Options: Options{NoRecommends: true}},
		{"debian", "13"}: {Names: kvmPackages, Options: Options{NoRecommends: true}},
	},
	ForImageBuild: {
		{"debian", "12"}:    {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
		{"debian", "13"}:    {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "22.04"}: {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "24.04"}: {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
	},
}

// filesystemPackages are the tools of ext4, xfs and btrfs.
var filesystemPackages = []string{"e2fsprogs", "xfsprogs", "btrfs-progs"}

// kvmPackages are libvirt and the emulator of the host's own architecture.
// libvirt's network needs dnsmasq and iptables. polkit lets the provisioner,
// which is not root, use libvirt.
var kvmPackages = append([]string{
	"libvirt-daemon-system", "libvirt-clients", "qemu-utils", "dnsmasq-base", "iptables", "polkitd",
}, map[string][]string{
	"amd64": {"qemu-system-x86", "seabios", "ipxe-qemu"},
	"arm64": {"qemu-system-arm", "qemu-efi-aarch64"},
}[runtime.GOARCH]...)

// SetFor returns the packages for a purpose on a release. Without an entry the
// error has the kind NeedsOperator.
func SetFor(purpose string, r Release) (Set, error) {
	if set, ok := sets[purpose][r]; ok {
		return set, nil
	}
	if purpose == ForLXD && r.ID == "ubuntu" {
		return Set{}, fault.New(fault.NeedsOperator, "cannot install LXD on %s: it has no such package; run `snap install lxd`", r)
	}
	return Set{}, fault.New(fault.NeedsOperator, "cannot tell what to install for %s on %s: install it by hand", purpose, r)
}

// ReadRelease reads an os-release file.
func ReadRelease(path string) (Release, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Release{}, fault.New(fault.NeedsOperator, "cannot tell this host's release: %s is missing", path)
	}
	if err != nil {
		return Release{}, fault.New(fault.Transient, "cannot tell this host's release: %w", err)
	}
	var r Release
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.ID = value
		case "VERSION_ID":
			r.Version = value
		}
	}
	return r, nil
}
