package lxd

import (
	"hostler/internal/fault"
	"hostler/packaging"
)

// packages lists LXD's packages. The package lxd recommends the DHCP server of
// its bridges and the loader of AppArmor profiles, which hostler needs, and an
// agent for virtual machines, which it does not need. btrfs-progs makes LXD's
// storage pools. On a host without iptables LXD needs nftables to make its
// bridges.
var packages = packaging.Sets{
	{ID: "debian", Version: "12"}: {Names: names, Options: packaging.Options{NoRecommends: true}},
	{ID: "debian", Version: "13"}: {Names: names, Options: packaging.Options{NoRecommends: true}},
}

var names = []string{"lxd", "dnsmasq-base", "apparmor", "btrfs-progs", "nftables"}

// packagesOn returns LXD's packages on a release. Without them the error has
// the kind NeedsOperator.
func packagesOn(r packaging.Release) (packaging.Set, error) {
	if r.ID == "ubuntu" {
		return packaging.Set{}, fault.New(fault.NeedsOperator, "cannot install LXD on %s: it has no such package; run `snap install lxd`", r)
	}
	return packages.On(r, "lxd")
}
