package lxd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"hostler/initialisers"
	"hostler/internal/fault"
)

// wanted is the part of Options that plan() uses.
type wanted struct {
	dialect       Dialect
	pool          string
	mtu           int
	networkMethod string
}

func (i *Initialiser) wanted() wanted {
	return wanted{dialect: i.opts.Dialect, pool: i.opts.Pool, mtu: i.opts.MTU, networkMethod: i.opts.NetworkMethod}
}

// seen is the observed state of LXD.
type seen struct {
	pools []string
	// limitless are the pools in plain folders, which enforce no size limits.
	limitless []string
	drivers   []string                // storage drivers that the daemon knows
	networks  map[string]network      // by name, including networks that LXD does not manage
	devices   map[string]deviceConfig // devices of the default profile and, unless taken is true, of Profile
	taken     bool                    // Profile exists but hostler did not make it
	cluster   bool
}

type network struct {
	managed bool
	kind    string
	address string // ipv4.address of a managed network
	mtu     int    // 0 means LXD's default
	ours    bool   // this package made it
}

// defaultMTU is the MTU, in bytes, of a bridge without a configured MTU.
const defaultMTU = 1500

type deviceConfig = map[string]string

// steps holds the planned changes. They are made in the order of the fields.
type steps struct {
	pool    string // pool to create
	network string // bridge to create
	subnet  string // the new bridge's address, e.g. 10.1.2.1/24
	mtuOf   string // hostler's bridge that must get the MTU mtu
	mtu     int
	devices map[string]deviceConfig // devices to add to Profile
}

// String lists all planned changes for the user. It returns "" if there are
// none.
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

// plan decides which objects LXD lacks for hostler's machines. It changes
// nothing that affects other instances, so the default profile and the server's
// configuration stay unchanged. It uses an existing pool or bridge, and the
// root disk and NIC of the default profile. Profile gets the devices that the
// default profile lacks. If a device is lacking and hostler did not make the
// existing Profile, plan returns fault.NeedsOperator.
func plan(have seen, want wanted, host initialisers.HostNetwork) (steps, error) {
	todo := steps{devices: map[string]deviceConfig{}}
	pool, err := choosePool(have.pools, want)
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
		bridge, exists := chooseBridge(have.networks, host.Links, want.dialect.bridge)
		if !exists {
			if have.cluster {
				return steps{}, fault.New(fault.NeedsOperator, "cannot make bridge %s: this %s is in a cluster; create it by `%s network create` on all members, or set types.%s.network-method to provider",
					bridge, want.dialect.Name, want.dialect.Command, want.dialect.Type)
			}
			todo.network = bridge
			if todo.subnet, err = freeSubnet(host.Used, have.networks, want.dialect); err != nil {
				return steps{}, err
			}
		}
		todo.devices["eth0"] = deviceConfig{"type": "nic", "name": "eth0", "network": bridge}
	}
	if have.taken && len(todo.devices) > 0 {
		return steps{}, fault.New(fault.NeedsOperator, "cannot use %s's profile %s, which hostler did not make: rename it by `%s profile rename %[2]s NAME`, or have hostler complete and use it by `%[3]s profile set %[2]s %s=true`",
			want.dialect.Name, Profile, want.dialect.Command, keyProfile)
	}
	if bridge, n := guestBridge(have, want); n.ours && otherMTU(n, want) {
		todo.mtuOf, todo.mtu = bridge, want.mtu
	}
	return todo, nil
}

// guestBridge returns the bridge of the NIC in the machines' profiles, or "" if
// LXD manages no such bridge.
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

// mtuNotice returns a notice if the bridge does not get the wanted MTU because
// hostler did not make the bridge. Otherwise it returns "". A wanted MTU of
// defaultMTU leads to no notice.
func mtuNotice(have seen, want wanted) string {
	bridge, n := guestBridge(have, want)
	if bridge == "" || n.ours || want.mtu == defaultMTU || !otherMTU(n, want) {
		return ""
	}
	return fmt.Sprintf("types.%s.mtu is %d, and %s's bridge %s, which hostler did not make, has another: set it by `%s network set %[4]s bridge.mtu=%[2]d`, or remove types.%[1]s.mtu",
		want.dialect.Type, want.mtu, want.dialect.Name, bridge, want.dialect.Command)
}

// rootDiskNotice returns a notice if the pool of root disks enforces no limits,
// and otherwise "".
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
	return fmt.Sprintf("%s's storage pool %s is a plain folder, which does not enforce root-disk: the guests share the space of the host; "+
		"create a pool with limits by `%s storage create NAME btrfs` and name it in types.%s.pool", want.dialect.Name, pool, want.dialect.Command, want.dialect.Type)
}

// choosePool returns the existing pool to use, or "" if a pool must be created.
func choosePool(have []string, wanted wanted) (string, error) {
	want := wanted.pool
	switch {
	case len(have) == 0:
		return "", nil
	case slices.Contains(have, want):
		return want, nil
	case want == "default":
		return slices.Min(have), nil
	}
	return "", fault.New(fault.NeedsOperator, "cannot use storage pool %s: %s has only %s; create it by `%s storage create %[1]s DRIVER` or name another in the host configuration",
		want, wanted.dialect.Name, strings.Join(slices.Sorted(slices.Values(have)), ", "), wanted.dialect.Command)
}

// chooseBridge returns the bridge that hostler made, or else a bridge of LXD
// with a usual name, e.g. lxdbr0. If neither exists, it returns false and the
// first free name for a new bridge, e.g. lxdbr1.
func chooseBridge(networks map[string]network, links []string, prefix string) (name string, exists bool) {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if n := networks[name]; n.ours && n.managed && n.kind == "bridge" {
			return name, true
		}
	}
	for n := 0; ; n++ {
		name = prefix + strconv.Itoa(n)
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
