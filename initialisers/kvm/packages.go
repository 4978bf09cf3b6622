package kvm

import (
	"runtime"

	"hostler/packaging"
)

var packages = packaging.Sets{
	{ID: "debian", Version: "12"}: {Names: names, Options: packaging.Options{NoRecommends: true}},
	{ID: "debian", Version: "13"}: {Names: names, Options: packaging.Options{NoRecommends: true}},
}

// names are the packages of libvirt and of the emulator of the host's own
// architecture. libvirt's network needs dnsmasq and iptables. polkit lets the
// provisioner, which is not root, use libvirt.
var names = append([]string{
	"libvirt-daemon-system", "libvirt-clients", "qemu-utils", "dnsmasq-base", "iptables", "polkitd",
}, map[string][]string{
	"amd64": {"qemu-system-x86", "seabios", "ipxe-qemu"},
	"arm64": {"qemu-system-arm", "qemu-efi-aarch64"},
}[runtime.GOARCH]...)
