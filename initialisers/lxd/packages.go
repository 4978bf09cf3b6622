package lxd

import (
	"context"
	"os"
	"slices"

	"hostler/internal/fault"
	"hostler/packaging"
)

// lxdPackages lists LXD's packages. Of the packages that lxd recommends, they
// include the DHCP server of LXD's bridges and the loader of AppArmor profiles,
// but not the agent for virtual machines, which hostler does not need. LXD
// needs btrfs-progs for its storage pools and, on a host without iptables,
// nftables for its bridges.
var lxdPackages = packaging.Sets{packaging.Debian: {"lxd", "dnsmasq-base", "apparmor", "btrfs-progs", "nftables"}}

// incusPackages lists Incus's packages. It has incus-base, the daemon for
// containers, because the package incus also installs QEMU.
var incusPackages = packaging.InAll("incus-base", "dnsmasq-base", "apparmor", "btrfs-progs", "nftables")

// packagesOn returns the daemon's packages on a release. It returns
// fault.NeedsOperator if none are known. Ubuntu has LXD only as a snap, which
// updates itself, so the operator must decide whether to install the snap.
func (l Dialect) packagesOn(r packaging.Release) ([]string, error) {
	if l.snap != "" && r.Family() == packaging.Ubuntu {
		return nil, fault.New(fault.NeedsOperator, "cannot install %s on %s: it has no such package; run `snap install lxd`, or declare the machines with `type: incus`", l.Name, r)
	}
	return l.packages.On(r, l.Type)
}

// packageNames returns the daemon's packages on this host, and the one among
// them that contains the daemon. That is the former package if the host has it
// or apt offers only it, e.g. incus in Ubuntu 24.04. Elsewhere a package of that
// name installs more than the daemon. Before packageNames asks for apt's offers,
// it calls fetch to fetch missing lists of packages, unless fetch is nil.
func (i *Initialiser) packageNames(ctx context.Context, fetch func() error) (names []string, own string, err error) {
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil {
		return nil, "", err
	}
	l := i.opts.Dialect
	if names, err = l.packagesOn(release); err != nil || l.former == "" {
		return names, l.own, err
	}
	either := []string{l.own, l.former}
	missing, err := i.opts.Packages.Missing(either)
	if err != nil || !slices.Contains(missing, l.own) {
		return names, l.own, err
	}
	if len(missing) == len(either) {
		if fetch != nil {
			if err := fetch(); err != nil {
				return nil, "", err
			}
		}
		lacking, err := i.opts.Packages.Unavailable(ctx, either)
		if err != nil || !slices.Equal(lacking, []string{l.own}) {
			return names, l.own, err
		}
	}
	names = slices.Clone(names)
	names[slices.Index(names, l.own)] = l.former
	return names, l.former, nil
}

// offer returns the remedy if apt does not offer the daemon's packages.
func (l Dialect) offer(r packaging.Release) string {
	if l.snap != "" {
		return "add one, or declare the machines with `type: incus`"
	}
	return r.Offer()
}

// obtainable returns why the daemon cannot be installed on this host, or nil if
// no obstacle is known.
func (i *Initialiser) obtainable(ctx context.Context) error {
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil {
		return err
	}
	names, _, err := i.packageNames(ctx, nil)
	if err != nil {
		return err
	}
	return fault.Explain(packaging.CheckOffered(ctx, i.opts.Packages, names, i.opts.Dialect.offer(release)), "cannot install %s", i.opts.Dialect.Name)
}

// programExists reports whether the host has the daemon's program, from
// Debian's package or from the snap.
func (i *Initialiser) programExists() bool {
	_, err := os.Stat(i.opts.Paths.Host(i.opts.Dialect.Program))
	return err == nil || i.snap()
}

// snap reports whether the host's daemon comes from the snap.
func (i *Initialiser) snap() bool {
	if i.opts.Dir != "" || i.opts.Dialect.snap == "" {
		return false
	}
	if socket := i.socket(); socket != "" {
		return !i.startable(socket)
	}
	_, err := os.Lstat(i.opts.Paths.Host(i.opts.Dialect.snap))
	return err == nil
}
