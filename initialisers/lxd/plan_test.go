package lxd

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hostler/initialisers"
	"hostler/internal/fault"
)

func devices(kv ...string) map[string]deviceConfig {
	all := map[string]deviceConfig{}
	for i := 0; i < len(kv); i += 2 {
		d := deviceConfig{}
		for part := range strings.FieldsSeq(kv[i+1]) {
			key, value, _ := strings.Cut(part, "=")
			d[key] = value
		}
		all[kv[i]] = d
	}
	return all
}

const (
	rootDisk = "type=disk path=/ pool=default"
	nic      = "type=nic name=eth0 network=lxdbr0"
)

// B9, L12, C21: the table of first configurations.
func TestPlan(t *testing.T) {
	host := initialisers.HostNetwork{Links: []string{"lo", "eth0"}, Used: []netip.Prefix{netip.MustParsePrefix("10.184.0.0/16")}}
	for name, c := range map[string]struct {
		have seen
		want wanted
		out  steps
		why  string
	}{
		"nothing there": {
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
			out: steps{
				pool: "default", network: "lxdbr0", subnet: "10.185.0.1/24",
				devices: devices("root", rootDisk, "eth0", nic),
			},
			why: "storage pool default, bridge lxdbr0 (10.185.0.1/24, NAT, DHCP), profile hostler of the machines made here (eth0 on lxdbr0, root on default)",
		},
		"provider method makes no network": {
			want: wanted{dialect: LXD, pool: "fast", networkMethod: NetworkProvider},
			out:  steps{pool: "fast", devices: devices("root", "type=disk path=/ pool=fast")},
			why:  "storage pool fast, profile hostler of the machines made here (root on fast)",
		},
		"configured": {
			have: seen{pools: []string{"default"}, devices: devices("root", rootDisk, "eth0", nic)},
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
		},
		"configured by the administrator": {
			have: seen{pools: []string{"tank"}, devices: devices("disk0", "type=disk path=/ pool=tank", "lan", "type=nic nictype=bridged parent=br0")},
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
		},
		"profile without devices, the administrator's pools": {
			have: seen{pools: []string{"z", "b"}, networks: map[string]network{"lxdbr0": {managed: true, kind: "bridge"}}},
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
			out:  steps{devices: devices("root", "type=disk path=/ pool=b", "eth0", nic)},
			why:  "profile hostler of the machines made here (eth0 on lxdbr0, root on b)",
		},
		"device names used otherwise": {
			have: seen{pools: []string{"default"}, devices: devices("root", "type=disk path=/x", "eth0", "type=none"), networks: map[string]network{"lxdbr0": {kind: "bridge"}}},
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
			out: steps{
				network: "lxdbr1", subnet: "10.185.0.1/24",
				devices: devices("root", rootDisk, "eth0", "type=nic name=eth0 network=lxdbr1"),
			},
			why: "bridge lxdbr1 (10.185.0.1/24, NAT, DHCP), profile hostler of the machines made here (eth0 on lxdbr1, root on default)",
		},
		"configured, with another's profile of our name": {
			have: seen{pools: []string{"default"}, devices: devices("root", rootDisk, "eth0", nic), taken: true},
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
		},
		"a bridge of hostler's beside LXD's own": {
			have: seen{pools: []string{"default"}, devices: devices("root", rootDisk), networks: map[string]network{
				"lxdbr0": {managed: true, kind: "bridge"}, "lxdbr1": {managed: true, kind: "bridge", ours: true},
			}},
			want: wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal},
			out:  steps{devices: devices("eth0", "type=nic name=eth0 network=lxdbr1")},
			why:  "profile hostler of the machines made here (eth0 on lxdbr1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := plan(c.have, c.want, host)
			if err != nil {
				t.Fatal(err)
			}
			if got.pool != c.out.pool || got.network != c.out.network || got.subnet != c.out.subnet || got.String() != c.why ||
				!maps.EqualFunc(got.devices, c.out.devices, maps.Equal) {
				t.Errorf("got %+v (%s), want %+v (%s)", got, got, c.out, c.why)
			}
		})
	}
	if _, err := plan(seen{pools: []string{"default", "a"}}, wanted{dialect: LXD, pool: "fast"}, host); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "LXD has only a, default") {
		t.Errorf("a pool that is not there: %v", err)
	}
	if _, err := plan(seen{cluster: true}, wanted{dialect: LXD, pool: "default", networkMethod: NetworkLocal}, host); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("a cluster: %v", err)
	}
	if _, err := plan(seen{taken: true}, wanted{dialect: LXD, pool: "default"}, host); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "lxc profile rename hostler NAME") {
		t.Errorf("another's profile of that name: %v", err)
	}
}

// Z14: the search covers all of the private ranges, and fails if no subnet is
// free.
func TestFreeSubnet(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		used []netip.Prefix
		lxd  string
		want string
	}{
		{nil, "", "10.184.0.1/24"},
		{[]netip.Prefix{p("0.0.0.0/0"), p("10.184.0.128/25"), p("10.184.1.7/32")}, "", "10.184.2.1/24"},
		{nil, "10.184.0.1/23", "10.184.2.1/24"},
		{nil, "none", "10.184.0.1/24"},
		{[]netip.Prefix{p("10.184.0.0/13"), p("10.192.0.0/10")}, "", "10.0.0.1/24"},
		{[]netip.Prefix{p("10.0.0.0/8")}, "", "172.16.0.1/24"},
		{[]netip.Prefix{p("10.0.0.0/8"), p("172.16.0.0/12"), p("192.168.0.0/17")}, "", "192.168.128.1/24"},
	} {
		got, err := freeSubnet(c.used, map[string]network{"x": {managed: true, address: c.lxd}}, LXD)
		if err != nil || got != c.want {
			t.Errorf("%v: %s, %v; want %s", c.used, got, err, c.want)
		}
	}
	if got, err := freeSubnet([]netip.Prefix{p("10.0.0.0/8"), p("172.16.0.0/12"), p("192.168.0.0/16")}, nil, LXD); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestProblemsNameTheirRemedies(t *testing.T) {
	good := probed{architecture: "amd64", userNS: true, maxUserNS: "1000", mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", dir: "/var/lib", free: 10 * initialisers.GiB}
	if got := good.problems("LXD"); len(got) != 0 {
		t.Errorf("a good host: %q", got)
	}
	for want, spoil := range map[string]func(*probed){
		"the agent does not run as root: run hostlerd as root":                                        func(p *probed) { p.euid = 1 },
		"there is no LXD for wasm: use another machine":                                               func(p *probed) { p.architecture = "wasm" },
		"the kernel has no user namespaces: boot a kernel with CONFIG_USER_NS":                        func(p *probed) { p.userNS = false },
		"user namespaces are switched off: set the kernel parameter user.max_user_namespaces above 0": func(p *probed) { p.maxUserNS = "0" },
		"no cgroups are mounted: mount cgroup2 on /sys/fs/cgroup":                                     func(p *probed) { p.mounts = "proc /proc proc" },
		"/var/lib has 1 MiB free: free 2048 MiB":                                                      func(p *probed) { p.free = 1 << 20 },
	} {
		bad := good
		spoil(&bad)
		if got := bad.problems("LXD"); !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
