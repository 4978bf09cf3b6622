package kvm

import (
	"context"
	"runtime"
	"slices"

	"hostler/internal/fault"
	"hostler/packaging"
)

// packages are the packages of libvirt and of the emulator of the host's own
// architecture. libvirt's network needs dnsmasq and iptables. polkit lets the
// provisioner, which is not root, use libvirt.
var packages = packaging.InAll(slices.Concat([]string{
	"libvirt-daemon-system", "libvirt-clients", "qemu-utils", "dnsmasq-base", "iptables", "polkitd",
}, map[string][]string{
	"amd64": {"qemu-system-x86", "seabios", "ipxe-qemu"},
	"arm64": {"qemu-system-arm", "qemu-efi-aarch64"},
}[runtime.GOARCH])...)

// daemonPackage is the package with libvirt's daemon, on which the first of
// packages depends.
const daemonPackage = "libvirt-daemon"

// packageNames returns the packages for this host's release. It returns
// fault.NeedsOperator if none are known for the release.
func (i *Initialiser) packageNames() ([]string, error) {
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil {
		return nil, err
	}
	return packages.On(release, "kvm")
}

// obtainable returns why libvirt and QEMU cannot be installed on this host, or
// nil if no obstacle is known.
func (i *Initialiser) obtainable(ctx context.Context) error {
	names, err := i.packageNames()
	if err != nil {
		return err
	}
	return fault.Explain(packaging.CheckOffered(ctx, i.opts.Packages, names, "add one"), "cannot install libvirt and QEMU")
}
