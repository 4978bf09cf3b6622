//go:build integration

package networks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// A host on which NetworkManager configures the NIC, which Ubuntu's configuration
// excludes. Its agent starts at boot.
const managed = `touch /etc/NetworkManager/conf.d/10-globally-managed-devices.conf
systemctl -q disable --now systemd-networkd.socket systemd-networkd; systemctl -q mask systemd-networkd
systemctl stop hostlerd; rm -rf /etc/systemd/network/20-eth.network*
cat >/etc/systemd/system/hostlerd.service <<END
[Unit]
After=network.target dbus.service
[Service]
Type=notify
KillMode=process
ExecStart=/usr/bin/hostlerd
[Install]
WantedBy=multi-user.target
END
systemctl -q daemon-reload; systemctl -q enable hostlerd`

// underNetworkManager gives the NIC of a host to NetworkManager, which leases its
// address, and puts it under a bridge: the lease is renewed there, NetworkManager
// makes the bridge again, at a boot too, and gets the NIC back in the end.
func underNetworkManager(t *testing.T, lxd *harness.LXD, h *harness.Host) {
	lxd.Lxc("network", "set", lxd.Bridge, "raw.dnsmasq", "dhcp-option=option:T1,6\ndhcp-option=option:T2,60")
	h.Install("network-manager")
	h.Sh(managed)
	// udev, which sets the bridge's stamp, does not run in privileged containers.
	if err := os.Chmod(filepath.Dir(lxd.Dir), 0o711); err != nil { // for the container's user ids
		t.Fatal(err)
	}
	lxd.Lxc("config", "set", h.Name, "security.privileged", "false")
	h.Restart()
	ask := func(script string) string {
		out, _ := h.Try(script)
		return strings.TrimSpace(out)
	}
	address := func(link string) string {
		return ask("ip -4 -o addr show dev " + link + " scope global | awk '{print $4}'")
	}
	had, mac := address("eth0"), ask("cat /sys/class/net/eth0/address")
	files := func() string {
		return ask("find /etc/NetworkManager /etc/systemd/network -type f -exec sha256sum {} + | sort -k 2")
	}
	before := files()
	on := func(link, profile string) {
		t.Helper()
		other := map[string]string{"eth0": "br-up", "br-up": "eth0"}[link]
		harness.Wait(t, "the lease on "+link, time.Minute, func() error {
			if is, left := address(link), address(other); is != had || left != "" {
				return fmt.Errorf("%s has %q, %s %q, wanted %q", link, is, other, left, had)
			}
			if routes := ask("ip route show default"); !strings.Contains(routes, "dev "+link) || strings.Count(routes, "default") != 1 {
				return errors.New(routes)
			}
			if state := ask("nmcli -g DEVICE,STATE,CONNECTION device"); !strings.Contains(state, link+":connected:"+profile) {
				return errors.New(state)
			}
			return nil
		})
		end := "nmcli -g DHCP4.OPTION device show " + link + " | grep -o 'expiry = [0-9]*'"
		first := ask(end)
		harness.Wait(t, "a renewal on "+link, time.Minute, func() error {
			if now := ask(end); now <= first || address(link) != had {
				return fmt.Errorf("the lease ends at %q, and did at %q", now, first)
			}
			return nil
		})
	}
	bridged := func() {
		t.Helper()
		on("br-up", "hostler-br-up")
		if is := ask("cat /sys/class/net/br-up/ifalias /sys/class/net/br-up/address"); !strings.HasPrefix(is, "hostler:hostler:") || !strings.HasSuffix(is, mac) {
			t.Errorf("the bridge is %q, the NIC's hardware address %s", is, mac)
		}
		if state := h.Sh("nmcli -g DEVICE,STATE,CONNECTION device; ls /run/hostler/paused-dhcp-clients 2>&1 || true"); !strings.Contains(state, "eth0:connected:hostler-eth0") || strings.HasSuffix(state, "\neth0\n") {
			t.Errorf("NetworkManager has not got its NIC: %s", state)
		}
		if plan := h.Sh("hostler plan -f /root/own.yaml"); !strings.Contains(plan, "no changes") {
			t.Errorf("the plan is %s", plan)
		}
	}
	h.Write("/root/own.yaml", "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [eth0]}}\n")
	h.Sh("hostler apply -f /root/own.yaml --confirm 2s")
	harness.Wait(t, "the revert", time.Minute, func() error {
		if out := ask("hostler get networks"); !strings.Contains(out, "was reverted") {
			return errors.New(out)
		}
		return nil
	})
	on("eth0", "Wired connection 1")
	h.Sh("hostler delete declaration/own --wait --timeout 1m && hostler apply -f /root/own.yaml --wait --timeout 1m")
	bridged()

	// The restarts of NetworkManager and of the host, and the loss of the bridge.
	quiet := func(what string) {
		t.Helper()
		if log := h.Sh("journalctl -b -u hostlerd -o cat | grep -e 'network changed' -e armed || true"); log != "" {
			t.Errorf("the agent has changed links after %s:\n%s", what, log)
		}
	}
	h.Sh("ip link add guest0 type veth peer guest1 && ip link set guest0 master br-up up && ip link set guest1 up")
	ports := "ls /sys/class/net/br-up/brif && cat /sys/class/net/br-up/ifindex && ip -4 -o addr show dev br-up | awk '{print $4}'"
	is := h.Sh(ports)
	h.Sh("systemctl restart NetworkManager")
	if now := h.Sh(ports); now != is {
		t.Errorf("the bridge was\n%s\nand is\n%s", is, now)
	}
	bridged()
	h.Reboot()
	bridged()
	quiet("the boot")
	h.Sh("ip link delete br-up")
	bridged()
	quiet("the loss of the bridge")

	h.Sh("hostler delete declaration/own --wait --timeout 1m")
	on("eth0", "eth0") // NetworkManager's own profile is gone since the boot
	if now := files(); now != before {
		t.Errorf("the files were\n%s\nand are\n%s", before, now)
	}
}
