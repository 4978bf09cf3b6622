package persist

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func bridge() Bridge {
	return Bridge{
		Name: "br-lan", NIC: "eth0", Index: 2, Namespace: "hostler", Stamp: "hostler:hostler:u1", MAC: "02:00:5e:10:00:01", MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24")},
	}
}

// host returns a root folder with files.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// tree reads all files below root.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, root+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const link = "run/systemd/netif/links/2"

func managed(file string) string { return "ADMIN_STATE=configured\nNETWORK_FILE=" + file + "\n" }

var hosts = map[string]struct {
	manager manager
	files   map[string]string
	want    map[string][]string // what our files hold
	not     map[string][]string
}{
	"networkd, static": {
		networkd,
		map[string]string{
			link:                                   managed("/etc/systemd/network/20-wired.network"),
			"etc/systemd/network/20-wired.network": "[Match]\nName=eth*\n\n[Link]\nMTUBytes=1400\nRequiredForOnline=yes\n\n[Network]\nAddress=192.0.2.10/24\nGateway=192.0.2.1\n# a comment\nDNS=192.0.2.53\nVLAN=vlan7\n\n[Route]\nDestination=198.51.100.0/24\nGateway=192.0.2.9\n",
			"etc/systemd/network/20-wired.network.d/more.conf": "[Network]\nDomains=example.org\n",
		},
		map[string][]string{
			"etc/systemd/network/05-hostler-br-lan.netdev":  {"Name=br-lan\nKind=bridge\nMACAddress=02:00:5e:10:00:01\nMTUBytes=1400\n", "STP=no\nForwardDelaySec=0\n"},
			"etc/systemd/network/05-hostler-br-lan.network": {"[Match]\nName=br-lan\n", "[Network]\nAddress=192.0.2.10/24\nGateway=192.0.2.1\nDNS=192.0.2.53\n", "[Route]\nDestination=198.51.100.0/24\nGateway=192.0.2.9\n", "Domains=example.org\n", "Address=10.20.0.1/24\n", "RequiredForOnline=yes"},
			"etc/systemd/network/05-hostler-eth0.network":   {"[Match]\nName=eth0\n", "Bridge=br-lan\n", "VLAN=vlan7\n", "LinkLocalAddressing=no\n", "KeepConfiguration=yes\n", "MTUBytes=1400\n"},
			"etc/systemd/network/05-hostler-br-lan.link":    {"OriginalName=br-lan\n", "Alias=hostler:hostler:u1\n"},
		},
		map[string][]string{
			"etc/systemd/network/05-hostler-br-lan.network": {"VLAN", "eth", "MTUBytes"},
			"etc/systemd/network/05-hostler-eth0.network":   {"192.0.2"},
		},
	},
	"netplan, DHCP": {
		netplan,
		map[string]string{
			link: managed("/run/systemd/network/10-netplan-eth0.network"),
			"run/systemd/network/10-netplan-eth0.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=ipv6\n\n[DHCP]\nRouteMetric=100\n",
			"etc/netplan/50-cloud-init.yaml":              "network:\n  ethernets:\n    eth0:\n      dhcp4: true\n",
		},
		map[string][]string{
			"etc/systemd/network/05-hostler-br-lan.network": {"DHCP=ipv4\n", "[DHCP]\nRouteMetric=100\n"},
			"etc/systemd/network/05-hostler-eth0.network":   {"Bridge=br-lan\n"},
		},
		map[string][]string{"etc/systemd/network/05-hostler-eth0.network": {"DHCP"}},
	},
	"networkd, with a lease": {
		networkd,
		map[string]string{
			link:                                   managed("/etc/systemd/network/20-wired.network"),
			"run/systemd/netif/leases/2":           "ADDRESS=192.0.2.10\nCLIENTID=ff00a0b0c000020000ab11d1d2d3d4d5d6d7d8\n",
			"etc/systemd/network/20-wired.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=yes\n",
		},
		map[string][]string{"etc/systemd/network/05-hostler-br-lan.network": {"[DHCPv4]\nIAID=10531008\n\n[DHCPv6]\nIAID=10531008\n"}},
		map[string][]string{"etc/systemd/network/05-hostler-eth0.network": {"IAID"}},
	},
	"networkd, a lease by the MAC address": {
		networkd,
		map[string]string{
			link:                                   managed("/etc/systemd/network/20-wired.network"),
			"run/systemd/netif/leases/2":           "ADDRESS=192.0.2.10\nCLIENTID=0102005e100001\n",
			"etc/systemd/network/20-wired.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=yes\n\n[DHCPv4]\nClientIdentifier=mac\n",
		},
		map[string][]string{"etc/systemd/network/05-hostler-br-lan.network": {"DHCP=yes\n"}},
		map[string][]string{"etc/systemd/network/05-hostler-br-lan.network": {"IAID"}},
	},
	"networkd, with an IAID of the administrator": {
		networkd,
		map[string]string{
			link:                                   managed("/etc/systemd/network/20-wired.network"),
			"run/systemd/netif/leases/2":           "ADDRESS=192.0.2.10\nCLIENTID=ff00000007000020000ab11d1d2d3d4d5d6d7d8\n",
			"etc/systemd/network/20-wired.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=yes\n\n[DHCPv4]\nIAID = 7\n",
		},
		map[string][]string{"etc/systemd/network/05-hostler-br-lan.network": {"IAID = 7\n"}},
		map[string][]string{"etc/systemd/network/05-hostler-br-lan.network": {"IAID=7"}},
	},
	"networkd, by the NIC's MAC address": {
		networkd,
		map[string]string{
			link:                                 managed("/etc/systemd/network/20-mac.network"),
			"etc/systemd/network/20-mac.network": "[Match]\nMACAddress=02:00:5e:10:00:01\nType=ether\n\n[Network]\nDHCP=yes\n",
		},
		map[string][]string{
			"etc/systemd/network/05-hostler-br-lan.network": {"\n# from /etc/systemd/network/20-mac.network\n[Match]\nName=br-lan\n", "[Network]\nDHCP=yes\n"},
			"etc/systemd/network/05-hostler-eth0.network":   {"\n# from /etc/systemd/network/20-mac.network\n[Match]\nName=eth0\n"},
		},
		nil,
	},
	"NetworkManager": {
		networkManager,
		map[string]string{
			"run/NetworkManager/devices/2":                              "[device]\nmanaged=true\nconnection-uuid=u-office\nroute-metric-default-effective=100\n\n[dhcp4]\ndhcp4.dhcp_client_identifier=01:02:00:5e:10:00:01\n",
			"etc/NetworkManager/system-connections/other.nmconnection":  "[connection]\nid=other\nuuid=u-other\ntype=wifi\n",
			"run/NetworkManager/system-connections/Office.nmconnection": "# a comment\n[connection]\nid=Office\nuuid=u-office\ntype=ethernet\nzone=work\nautoconnect-priority=5\n\n[ethernet]\nwake-on-lan=64\n\n[ipv4]\naddress1=192.0.2.77/24\ndns=192.0.2.53;\nmethod=auto\n\n[ipv6]\nmethod=disabled\n\n[802-1x]\neap=tls;\n",
		},
		map[string][]string{
			"etc/NetworkManager/system-connections/05-hostler-br-lan.nmconnection": {
				"\n[connection]\nid=hostler-br-lan\nuuid=" + profileID("hostler", "br-lan") + "\ntype=bridge\ninterface-name=br-lan\nautoconnect=false\nstable-id=u-office\nzone=work\n",
				"[ethernet]\ncloned-mac-address=02:00:5e:10:00:01\nmtu=1400\n", "[bridge]\nstp=false\n",
				"[ipv4]\naddress1=192.0.2.77/24\ndns=192.0.2.53;\nroute-metric=100\ndhcp-client-id=01:02:00:5e:10:00:01\ndhcp-timeout=2147483647\naddress1000=10.20.0.1/24\nmethod=auto\n", "[ipv6]\nroute-metric=100\nmethod=disabled\n",
				"hostler.origin=u-office\n",
			},
			"etc/NetworkManager/system-connections/05-hostler-eth0.nmconnection": {
				"interface-name=eth0\nautoconnect-priority=999\nmaster=" + profileID("hostler", "br-lan") + "\nslave-type=bridge\n", "[ethernet]\nwake-on-lan=64\n", "[802-1x]\neap=tls;\n",
			},
			"etc/systemd/network/05-hostler-br-lan.link": {"Alias=hostler:hostler:u1\n"},
		},
		map[string][]string{
			"etc/NetworkManager/system-connections/05-hostler-br-lan.nmconnection": {"priority", "802-1x", "wake"},
			"etc/NetworkManager/system-connections/05-hostler-eth0.nmconnection":   {"ipv4", "192.0.2", "zone"},
		},
	},
	"ifupdown": {
		ifupdown,
		map[string]string{"etc/network/interfaces": "source /etc/network/interfaces.d/*\nauto eth0\niface eth0 inet dhcp\n"},
		map[string][]string{"etc/network/if-up.d/hostler-br-lan": {"#!/bin/sh\n", `[ "$IFACE" = "eth0" ]`, "address 02:00:5e:10:00:01 type bridge stp_state 0", `alias "hostler:hostler:u1" up mtu 1400`, "ip addr replace 10.20.0.1/24 dev br-lan"}},
		nil,
	},
	"nobody": {none, map[string]string{"etc/network/interfaces": "iface lo inet loopback\n"}, nil, nil},
}

// N20 N21: the files have the format of the NIC's manager, with its addressing
// on the bridge and its MTU on the NIC. Writing them twice changes nothing, and
// the administrator's files stay unchanged.
func TestWriteAndRemove(t *testing.T) {
	for name, c := range hosts {
		t.Run(name, func(t *testing.T) {
			root := host(t, c.files)
			before := tree(t, root)
			if m, holds := holds(root, bridge()); m != c.manager || holds != (len(c.want) == 0) {
				t.Errorf("before Write: %q, the files hold: %v", m, holds)
			}
			m, changed, err := writeBridge(root, bridge())
			if err != nil || m != c.manager || changed != (len(c.want) > 0) {
				t.Fatalf("Write: %q, %v, %v", m, changed, err)
			}
			if _, holds := holds(root, bridge()); !holds {
				t.Error("after Write the files do not hold")
			}
			after := tree(t, root)
			for path, texts := range c.want {
				for _, text := range texts {
					if !strings.Contains(after[path], text) {
						t.Errorf("no %q in %s:\n%s", text, path, after[path])
					}
				}
			}
			for path, texts := range c.not {
				_, body, _ := strings.Cut(after[path], "\n")
				for _, text := range texts {
					if strings.Contains(body, text) {
						t.Errorf("%q in %s:\n%s", text, path, after[path])
					}
				}
			}
			for path, content := range before {
				if after[path] != content {
					t.Errorf("%s was changed", path)
				}
			}
			if _, again, err := writeBridge(root, bridge()); err != nil || again {
				t.Errorf("the second Write: %v, %v", again, err)
			}
			if c.manager == networkd || c.manager == netplan {
				// After the next boot our file rules the NIC, which has no lease, while
				// the bridge's file is still derived from the administrator's.
				const lease = "run/systemd/netif/leases/2"
				if os.Remove(filepath.Join(root, lease)) == nil {
					delete(before, lease)
				}
				if err := os.WriteFile(filepath.Join(root, link), []byte(managed("/etc/systemd/network/05-hostler-eth0.network")), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, again, err := writeBridge(root, bridge()); err != nil || again {
					t.Errorf("Write after the start: %v, %v", again, err)
				}
				before[link] = managed("/etc/systemd/network/05-hostler-eth0.network")
			}
			if names := bridges(root, "hostler"); fmt.Sprint(names) != map[bool]string{true: "[br-lan]", false: "[]"}[len(c.want) > 0] {
				t.Errorf("the bridges are %v", names)
			}
			if others := bridges(root, "other"); len(others) > 0 {
				t.Errorf("another agent's bridges are %v", others)
			}
			for range 2 { // a second time after a crash in between
				if there, err := disable(root, "hostler", "br-lan"); err != nil || there != (len(c.want) > 0) {
					t.Errorf("Disable: %v, %v", there, err)
				}
				for path := range tree(t, root) {
					if strings.Contains(path, "hostler-") && !strings.HasSuffix(path, ".off") {
						t.Errorf("%s is still in use", path)
					}
				}
			}
			if names := bridges(root, "hostler"); len(names) != min(1, len(c.want)) {
				t.Errorf("out of use, the bridges are %v", names)
			}
			if changed, err := removeBridge(root, "hostler", "br-lan"); err != nil || changed != (len(c.want) > 0) {
				t.Errorf("Remove: %v, %v", changed, err)
			}
			if d := cmp.Diff(before, tree(t, root)); d != "" {
				t.Errorf("the files are not as they were: %s", d)
			}
		})
	}
}

// The NIC's own file is disabled first, so that a boot in between does not put
// the NIC under a bridge that it cannot create.
func TestDisableLetsGoOfTheNICFirst(t *testing.T) {
	c := hosts["netplan, DHCP"]
	root := host(t, c.files)
	if _, _, err := writeBridge(root, bridge()); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(root, "etc/systemd/network/05-hostler-")
	for _, name := range []string{"link", "netdev", "network"} { // in the way of the others
		if err := os.MkdirAll(base+"br-lan."+name+".off/x", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := disable(root, "hostler", "br-lan"); err == nil {
		t.Error("nothing was in the way")
	}
	if _, err := os.Stat(base + "eth0.network.off"); err != nil {
		t.Error(err)
	}
}

// If the administrator's file is gone, the bridge's file is derived from the
// next file that names the NIC; without such a file there is an error.
func TestAnotherFileRules(t *testing.T) {
	root := host(t, map[string]string{
		link:                                  managed("/etc/systemd/network/20-mac.network"),
		"etc/systemd/network/20-mac.network":  "[Match]\nMACAddress=02:00:5e:10:00:01\n\n[Network]\nDHCP=yes\n",
		"etc/systemd/network/30-eth0.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=ipv6\n",
	})
	write := func(want string) {
		t.Helper()
		if _, _, err := writeBridge(root, bridge()); err != nil {
			t.Fatal(err)
		}
		if text := tree(t, root)["etc/systemd/network/05-hostler-br-lan.network"]; !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	write("DHCP=yes")
	if err := os.WriteFile(filepath.Join(root, link), []byte(managed("/etc/systemd/network/05-hostler-eth0.network")), 0o600); err != nil {
		t.Fatal(err)
	}
	write("DHCP=yes")
	if err := os.Remove(filepath.Join(root, "etc/systemd/network/20-mac.network")); err != nil {
		t.Fatal(err)
	}
	write("DHCP=ipv6")
	write("# from /etc/systemd/network/30-eth0.network\n")
	if err := os.Remove(filepath.Join(root, "etc/systemd/network/30-eth0.network")); err != nil {
		t.Fatal(err)
	}
	if _, changed, err := writeBridge(root, bridge()); err == nil || changed || !strings.Contains(err.Error(), "configuration of eth0") {
		t.Errorf("%v, %v", changed, err)
	}
}

// An administrator's file with a name like ours stays.
func TestForeignFilesStay(t *testing.T) {
	root := host(t, map[string]string{"etc/systemd/network/05-hostler-mine.network": "[Match]\nName=x\n"})
	if changed, err := removeBridge(root, "hostler", "br-lan"); err != nil || changed {
		t.Errorf("Remove: %v, %v", changed, err)
	}
}
