//go:build integration

package persist

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/hostnet/nettest"
)

// A leased address and an advertised route keep their ends on the bridge.
func TestIfupdownScriptKeepsLeases(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	n.Pair("eth0", peer, "gw0")
	n.IP("addr add 192.0.2.10/24 dev eth0 valid_lft 3600 preferred_lft 1800")
	n.IP("-6 addr add 2001:db8::10/64 dev eth0 nodad")
	n.IP("-6 route add default via 2001:db8::1 dev eth0 proto ra metric 1024 expires 1800")
	n.Sysctl("net/ipv6/conf/eth0/accept_ra=2")
	root := host(t, map[string]string{"etc/network/interfaces": "iface eth0 inet dhcp\n"})
	if _, _, err := writeBridge(root, bridge()); err != nil {
		t.Fatal(err)
	}
	n.Run("/usr/bin/env", "IFACE=eth0", "METHOD=dhcp", filepath.Join(root, "etc/network/if-up.d/hostler-br-lan"))
	if got := n.IP("-4 -o addr show dev br-lan to 192.0.2.0/24"); !strings.Contains(got, "dynamic") || !strings.Contains(got, "preferred_lft 1") {
		t.Errorf("the bridge has %q", got)
	}
	if got := n.IP("-6 route show default"); !strings.Contains(got, "dev br-lan") || !strings.Contains(got, "expires 1") || strings.Contains(got, "eth0") {
		t.Errorf("the default route is %q", got)
	}
	if got := strings.TrimSpace(n.Run("/usr/sbin/sysctl", "-n", "net/ipv6/conf/br-lan/accept_ra")); got != "2" {
		t.Errorf("accept_ra of the bridge is %s", got)
	}
}

// The script moves the NIC's configuration in the kernel. It does nothing for
// other links or on a second run.
func TestIfupdownScript(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	n.Sysctl("net/ipv6/conf/default/accept_dad=0")
	n.Pair("eth0", peer, "gw0")
	n.IP("addr add 192.0.2.10/24 brd 192.0.2.255 dev eth0")
	n.IP("-6 addr add 2001:db8::10/64 dev eth0 nodad")
	n.IP("route add default via 192.0.2.1 dev eth0 metric 100")
	n.IP("route add 198.51.100.0/24 via 192.0.2.9 dev eth0")
	n.IP("-6 route add default via 2001:db8::1 dev eth0")
	root := host(t, map[string]string{"etc/network/interfaces": "iface eth0 inet static\n"})
	b := bridge()
	b.MTU = 1500
	if _, _, err := writeBridge(root, b); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, "etc/network/if-up.d/hostler-br-lan")
	state := func() string {
		lines := strings.Split(n.IP("-o addr show")+n.IP("route show")+n.IP("-6 route show")+n.IP("-o link show eth0"), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	before := state()
	n.Run("/usr/bin/env", "IFACE=lo", "METHOD=loopback", script)
	if state() != before {
		t.Errorf("after lo:\n%s", state())
	}
	n.Run("/usr/bin/env", "IFACE=eth0", "METHOD=static", script)
	after := state()
	for _, want := range []string{
		"inet 192.0.2.10/24 brd 192.0.2.255 scope global br-lan", "inet6 2001:db8::10/64 scope global", "inet 10.20.0.1/24",
		"default via 192.0.2.1 dev br-lan metric 100", "198.51.100.0/24 via 192.0.2.9 dev br-lan", "default via 2001:db8::1 dev br-lan", "master br-lan",
	} {
		if !strings.Contains(after, want) {
			t.Errorf("no %q in\n%s", want, after)
		}
	}
	if left := n.IP("-o addr show dev eth0"); left != "" {
		t.Errorf("eth0 still has %s", left)
	}
	if shown := n.IP("-d link show br-lan"); !strings.Contains(shown, b.MAC) || !strings.Contains(shown, "alias "+b.Stamp) || !strings.Contains(shown, "stp_state 0") {
		t.Errorf("the bridge is %s", shown)
	}
	n.Run("/usr/bin/env", "IFACE=eth0", "METHOD=static", script)
	if again := state(); again != after {
		t.Errorf("the second time it does more:\n%s\nwas\n%s", again, after)
	}
}

// If the bridge cannot be made or cannot take the NIC, the NIC keeps its
// configuration, and dhcpcd serves it.
func TestIfupdownScriptWithoutABridge(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(n, other *nettest.Namespace)
		pidFile string // of dhcpcd
		ended   bool   // the script ends this dhcpcd
		started string // the dhcpcd that the script starts
	}{
		{"another link has the name", func(n, other *nettest.Namespace) { n.Pair("br-lan", other, "gw1") }, "eth0.pid", false, ""},
		{"the NIC has a macvlan", macvlan, "eth0.pid", true, "-b eth0\n"},
		{"the NIC has a macvlan, IPv4", macvlan, "eth0-4.pid", true, "-b -4 eth0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, peer := nettest.New(t), nettest.New(t)
			n.Pair("eth0", peer, "gw0")
			n.IP("addr add 192.0.2.10/24 brd 192.0.2.255 dev eth0")
			n.IP("route add default via 192.0.2.1 dev eth0")
			c.prepare(n, peer)
			root := host(t, map[string]string{"etc/network/interfaces": "iface eth0 inet dhcp\n", "bin/dhcpcd": "#!/bin/sh\necho \"$*\" >>\"$LOG\"\n"})
			if _, _, err := writeBridge(root, bridge()); err != nil {
				t.Fatal(err)
			}
			stub, log := filepath.Join(root, "bin/dhcpcd"), filepath.Join(root, "started")
			if err := errors.Join(os.Chmod(stub, 0o700), os.WriteFile(log, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			// The script knows only the host's own /run.
			left := n.Run("/usr/bin/unshare", "--mount", "/bin/sh", "-ec", `
				mount -t tmpfs tmpfs /run
				mkdir /run/dhcpcd
				sleep 60 >/dev/null &
				echo $! >"/run/dhcpcd/$1"
				IFACE=eth0 METHOD=dhcp LOG=$2 PATH=$3:$PATH $4
				if kill -KILL $! 2>/dev/null && [ -s "/run/dhcpcd/$1" ]; then echo runs; fi
			`, "sh", c.pidFile, log, filepath.Dir(stub), filepath.Join(root, "etc/network/if-up.d/hostler-br-lan"))
			if ended := left == ""; ended != c.ended {
				t.Errorf("dhcpcd ended: %v", ended)
			}
			if started, err := os.ReadFile(log); err != nil || string(started) != c.started {
				t.Errorf("started dhcpcd %q, %v, want %q", started, err, c.started)
			}
			if got := n.IP("-4 -o addr show dev eth0") + n.IP("route show"); !strings.Contains(got, "inet 192.0.2.10/24") || !strings.Contains(got, "default via 192.0.2.1 dev eth0") {
				t.Errorf("eth0 has %s", got)
			}
		})
	}
}

// macvlan puts a macvlan on the NIC, which no bridge can take then.
func macvlan(n, _ *nettest.Namespace) { n.IP("link add link eth0 name mac0 type macvlan mode bridge") }
