//go:build integration

package lxd_test

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/cloudinit"
	"hostler/containerbroker/images"
	"hostler/containerbroker/images/imagestest"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/run"
)

// N2: a Debian guest configures a static interface beside a DHCP interface,
// survives the replacement of a running interface, and takes another address at
// its next start. That start repeats nothing of the first boot: SSH host keys
// stay, and no command of the user-data runs twice.
func TestDebianConfiguresItsInterfaces(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "images")
	keep := imagestest.Use(t, dir)
	cache, err := images.Open(images.Options{Dir: dir, Runner: run.Host{}})
	must(t, err)
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: "btrfs", NoImage: true})
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler", Images: cache})
	image, err := d.EnsureImage(t.Context(), "debian/12", nil)
	must(t, err)
	keep()
	br := brokertest.Bridge(t)
	octets := make([]byte, 2)
	_, _ = rand.Read(octets)
	four := fmt.Sprintf("198.19.%d.", octets[0])
	six := fmt.Sprintf("fd00:0:0:%x%02x::", 1+octets[1]%100, octets[0])
	host(t, "ip", "address", "add", four+"1/24", "dev", br)
	host(t, "ip", "address", "add", six+"1/64", "dev", br, "nodad")

	m := machine("debian", image, "token")
	m.NICs = []containerbroker.NIC{{
		Name: "eth0", Bridge: br, MAC: "00:16:3e:bb:00:01", MTU: 1400, Static: true,
		Addresses: []string{four + "10/24", six + "10/64"}, Gateways: []string{four + "1", six + "1"}, Nameservers: []string{four + "1"},
	}, {Name: "lan1", Bridge: server.Bridge, MAC: "00:16:3e:bb:00:02"}}
	m.Guest = cloudinit.Input{Hostname: m.Name, UserData: "#cloud-config\nruncmd: [\"echo ran >>/root/first-boot\"]\n"}
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	ready, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	if ready.CloudInit != "done" || !slices.Contains(ready.Addresses, four+"10") || !slices.Contains(ready.Addresses, six+"10") {
		t.Errorf("ready as %+v", ready)
	}
	show := "ip -d addr; ip route; ip -6 route; cat /run/systemd/network/* /etc/systemd/network/*; cat /run/systemd/resolve/resolv.conf /etc/resolv.conf"
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := inside(t, d, m.Name, show)
			t.Log(out)
		}
	})
	reaches := func(after string) {
		t.Helper()
		deadline := time.Now().Add(30 * time.Second)
		for {
			out, ok := inside(t, d, m.Name, "default=$(ip route show default); case $default in *'via "+four+"1 '*) ;; *) exit 1;; esac; ip -o -4 addr show dev eth0")
			if ok && strings.Contains(out, "inet ") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no address or route %s: %s", after, out)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	reaches("at first")
	// No router answers on the bridge, and the boot did not wait for one.
	works(t, d, m.Name, "systemctl show -p Result systemd-networkd-wait-online.service | grep success && ! journalctl -u systemd-networkd-wait-online.service | grep -i timeout")
	works(t, d, m.Name, "ip link show eth0 | grep 'mtu 1400'")
	works(t, d, m.Name, "ip -6 route | grep 'default via "+six+"1'")
	works(t, d, m.Name, "ip -4 addr show lan1 | grep 'inet '")
	works(t, d, m.Name, "grep -rh '"+four+"1' /etc/systemd/network /run/systemd/network | grep DNS")

	firstBoot := func() string {
		t.Helper()
		out, ok := inside(t, d, m.Name, "cat /root/first-boot /etc/ssh/ssh_host_*_key.pub /var/lib/cloud/data/instance-id")
		if !ok || strings.Count(out, "ran") != 1 || strings.Count(out, "ssh-ed25519") != 1 {
			t.Errorf("of the first boot: %s", out)
		}
		return out
	}
	before := firstBoot()

	m.NICs[0].MAC = "00:16:3e:bb:00:03"
	update(t, d, m)
	reaches("after the interface was exchanged")

	m.NICs[0].Addresses = []string{four + "11/24"}
	update(t, d, m)
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 30*time.Second))
	ready, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	if !slices.Contains(ready.Addresses, four+"11") || slices.Contains(ready.Addresses, four+"10") {
		t.Errorf("with another address it is ready as %+v", ready)
	}
	reaches("after the restart")
	if after := firstBoot(); after != before {
		t.Errorf("the first boot left\n%s\nand after a restart for another address there is\n%s", before, after)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}
