package lxd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"hostler/internal/fault"
)

// wanted is the part of Options that plan uses.
type wanted struct {
	pool          string
	mtu           int
	networkMethod string
}

func (i *Initialiser) wanted() wanted {
	return wanted{pool: i.opts.Pool, mtu: i.opts.MTU, networkMethod: i.opts.NetworkMethod}
}

// seen is the observed state of LXD.
type seen struct {
	pools []string
	// limitless are the pools in plain folders, without quotas.
	limitless []string
	drivers   []string                // storage drivers that the daemon knows
	networks  map[string]network      // by name, managed and others
	devices   map[string]deviceConfig // of the default profile and, unless taken, Profile
	taken     bool                    // Profile exists but hostler did not make it
	cluster   bool
}

type network struct {
	managed bool
	kind    string
	address string // ipv4.address of a managed network
	mtu     int    // 0: LXD's default
	ours    bool   // made by this package
}

// defaultMTU is the MTU of a bridge without a configured MTU.
const defaultMTU = 1500

type deviceConfig = map[string]string

// steps holds the planned changes, in the order of its fields.
type steps struct {
	pool    string // to create
	network string // bridge to create
	subnet  string // its address, e.g. 10.1.2.1/24
	mtuOf   string // hostler's bridge that gets the wanted MTU
	mtu     int
	devices map[string]deviceConfig // for Profile
}

// String lists all planned changes of LXD, "" for none.
func (s steps) String() string {
	var parts []string
	if s.pool != "" {
		parts = append(parts, "storage pool "+s.pool)
	}
	if s.network != "" {
		parts = append(parts, fmt.Sprintf("bridge %s (%s, NAT, DHCP)", s.network, s.subnet))
	}
	if s.mtuOf != "" {
		parts = append(parts, fmt.Sprintf("MTU %d of bridge %s", s.mtu, s.mtuOf))
	}
	if len(s.devices) > 0 {
		var devices []string
		for _, name := range slices.Sorted(maps.Keys(s.devices)) {
			d := s.devices[name]
			devices = append(devices, name+" on "+d["network"]+d["pool"])
		}
		parts = append(parts, fmt.Sprintf("profile %s of the machines made here (%s)", Profile, strings.Join(devices, ", ")))
	}
	return strings.Join(parts, ", ")
}

// plan decides which objects LXD lacks for hostler's machines. It touches
// nothing that affects other instances: the default profile and the server's
// configuration stay as they are. It uses an existing pool or bridge, and the
// root disk and NIC of the default profile. Profile gets the devices that the
// default profile lacks; a Profile that hostler did not make is only in the way
// if a device is lacking.
func plan(have seen, want wanted, host hostNetwork) (steps, error) {
	todo := steps{devices: map[string]deviceConfig{}}
	pool, err := choosePool(have.pools, want.pool)
	if err != nil {
		return steps{}, err
	}
	if pool == "" {
		pool, todo.pool = want.pool, want.pool
	}
	if !hasDevice(have.devices, func(d deviceConfig) bool { return d["type"] == "disk" && d["path"] == "/" }) {
		todo.devices["root"] = deviceConfig{"type": "disk", "path": "/", "pool": pool}
	}
	if want.networkMethod == NetworkLocal && !hasDevice(have.devices, func(d deviceConfig) bool { return d["type"] == "nic" }) {
		bridge, exists := chooseBridge(have.networks, host.links)
		if !exists {
			if have.cluster {
				return steps{}, fault.New(fault.NeedsOperator, "cannot make bridge %s: this LXD is in a cluster; create it by `lxc network create` on all members, or set types.lxd.network-method to provider", bridge)
			}
			todo.network = bridge
			if todo.subnet, err = freeSubnet(host.used, have.networks); err != nil {
				return steps{}, err
			}
		}
		todo.devices["eth0"] = deviceConfig{"type": "nic", "name": "eth0", "network": bridge}
	}
	if have.taken && len(todo.devices) > 0 {
		return steps{}, fault.New(fault.NeedsOperator, "cannot use LXD's profile %s, which hostler did not make: rename it by `lxc profile rename %s NAME`, or have hostler complete and use it by `lxc profile set %s %s=true`",
			Profile, Profile, Profile, keyProfile)
	}
	if bridge, n := guestBridge(have, want); n.ours && otherMTU(n, want) {
		todo.mtuOf, todo.mtu = bridge, want.mtu
	}
	return todo, nil
}

// guestBridge returns the managed bridge of the NIC in the machines' profiles,
// "" if there is none.
func guestBridge(have seen, want wanted) (string, network) {
	if want.networkMethod != NetworkLocal {
		return "", network{}
	}
	for _, name := range slices.Sorted(maps.Keys(have.devices)) {
		d := have.devices[name]
		bridge := d["network"]
		if bridge == "" {
			bridge = d["parent"]
		}
		if n := have.networks[bridge]; d["type"] == "nic" && n.managed && n.kind == "bridge" {
			return bridge, n
		}
	}
	return "", network{}
}

func otherMTU(n network, want wanted) bool {
	is := n.mtu
	if is == 0 {
		is = defaultMTU
	}
	return want.mtu != 0 && want.mtu != is
}

// mtuNotice returns a notice if the wanted MTU does not apply because hostler
// did not make the bridge, or "". A wanted MTU of defaultMTU counts as none.
func mtuNotice(have seen, want wanted) string {
	bridge, n := guestBridge(have, want)
	if bridge == "" || n.ours || want.mtu == defaultMTU || !otherMTU(n, want) {
		return ""
	}
	return fmt.Sprintf("types.lxd.mtu is %d, and LXD's bridge %s, which hostler did not make, has another: set it by `lxc network set %s bridge.mtu=%d`, or remove types.lxd.mtu",
		want.mtu, bridge, bridge, want.mtu)
}

// RootDiskNotice is the key of the notice that root disks have no limits.
const RootDiskNotice = "root disks of lxd machines"

// rootDiskNotice returns a notice if the pool of root disks enforces no limits,
// or "".
func rootDiskNotice(have seen, want wanted) string {
	pool := want.pool
	if pool == "default" {
		for _, name := range slices.Sorted(maps.Keys(have.devices)) {
			if d := have.devices[name]; d["type"] == "disk" && d["path"] == "/" && d["pool"] != "" {
				pool = d["pool"]
			}
		}
	}
	if !slices.Contains(have.limitless, pool) {
		return ""
	}
	return fmt.Sprintf("LXD's storage pool %s is a plain folder, which does not enforce root-disk: the guests share the space of the host; "+
		"create a pool with limits by `lxc storage create NAME btrfs` and name it in types.lxd.pool", pool)
}

// choosePool returns the existing pool to use, "" if a pool must be created.
func choosePool(have []string, want string) (string, error) {
	switch {
	case len(have) == 0:
		return "", nil
	case slices.Contains(have, want):
		return want, nil
	case want == "default":
		return slices.Min(have), nil
	}
	return "", fault.New(fault.NeedsOperator, "cannot use storage pool %s: LXD has only %s; create it by `lxc storage create %s DRIVER` or name another in the host configuration",
		want, strings.Join(slices.Sorted(slices.Values(have)), ", "), want)
}

// chooseBridge returns the bridge that hostler made, or LXD's own, or else the
// first free name for a new bridge, e.g. lxdbr1.
func chooseBridge(networks map[string]network, links []string) (name string, exists bool) {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if n := networks[name]; n.ours && n.managed && n.kind == "bridge" {
			return name, true
		}
	}
	for n := 0; ; n++ {
		name = "lxdbr" + strconv.Itoa(n)
		existing, known := networks[name]
		if known && existing.managed && existing.kind == "bridge" {
			return name, true
		}
		if !known && !slices.Contains(links, name) {
			return name, false
		}
	}
}

func hasDevice(devices map[string]deviceConfig, is func(deviceConfig) bool) bool {
	for _, d := range devices {
		if is(d) {
			return true
		}
	}
	return false
}

// The pool's file is sparse: its size is the limit for all containers together,
// not the space that it takes at once.
const (
	gib         = 1 << 30
	poolLeast   = 10 * gib
	poolMost    = 500 * gib
	poolReserve = 2 * gib // stays free for the host if space is short
)

// poolSize returns the size of a new pool on a disk with free bytes: half of
// them within bounds, in whole GiB. Both are in bytes.
func poolSize(free uint64) uint64 {
	size := min(max(free/2, poolLeast), poolMost)
	if free < size+poolReserve {
		size = max(free, poolReserve+gib) - poolReserve
	}
	return size / gib * gib
}
