//go:build integration

package networks

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// The NIC of a host comes under a bridge and back, under one manager of NICs after the
// other. `make test-hosts` runs it on each release.
func TestTheManagersOfANIC(t *testing.T) {
	lxd := harness.StartLXD(t, 43)
	h := lxd.StartHost("managers")
	for _, name := range []string{"hostlerd", "hostler"} {
		h.Push(filepath.Join(harness.Binaries(t, ""), name), "/usr/bin/"+name)
	}
	h.Sh("chmod 755 /usr/bin/hostler*; apt-get -qq update")
	h.Install("nftables")
	h.Install("--download-only", "network-manager") // names may not resolve for a moment later on
	h.Sh("mkdir -p /etc/hostler")
	t.Run("systemd-networkd", func(t *testing.T) { underNetworkd(t, h.With(t)) })
	t.Run("NetworkManager", func(t *testing.T) { underNetworkManager(t, lxd, h.With(t)) })
}

// underNetworkd puts the NIC of a host with systemd-networkd and a lease under a
// bridge: the lease is renewed there, the bridge comes back at the host's boot without
// the agent, the administrator's files stay unchanged, and the watchdog is a unit of
// its own.
func underNetworkd(t *testing.T, h *harness.Host) {
	// networkd's default; the harness's hosts do otherwise, because copies of one have
	// the same identifier.
	h.Sh("mkdir /etc/systemd/network/20-eth.network.d && printf '[DHCPv4]\\nClientIdentifier=duid\\n' >/etc/systemd/network/20-eth.network.d/duid.conf && systemctl stop systemd-networkd && ip addr flush dev eth0 && systemctl start systemd-networkd")
	client := func(link string) string {
		out, _ := h.Try("sed -n 's/^CLIENTID=//p' /run/systemd/netif/leases/$(cat /sys/class/net/" + link + "/ifindex)")
		return strings.TrimSpace(out)
	}
	files := func() string {
		return h.Sh("find /etc/systemd/network /etc/network /etc/netplan /run/systemd/network -type f -exec sha256sum {} + 2>/dev/null | sort -k 2 || true")
	}
	address := func(link string) string {
		out, _ := h.Try("ip -4 -o addr show dev " + link + " scope global | awk '{print $4}'")
		return strings.TrimSpace(out)
	}
	before, id, had := files(), "", ""
	harness.Wait(t, "a lease by networkd's identifier", time.Minute, func() error {
		leased, _ := h.Try("sed -n 's/^ADDRESS=//p' /run/systemd/netif/leases/$(cat /sys/class/net/eth0/ifindex)")
		id, had = client("eth0"), address("eth0")
		if on, _, _ := strings.Cut(had, "/"); !strings.HasPrefix(id, "ff") || on == "" || on != strings.TrimSpace(leased) {
			return fmt.Errorf("the identifier is %q, eth0 has %q, leased is %q", id, had, leased)
		}
		return nil
	})
	bridged := func(limit time.Duration) {
		t.Helper()
		harness.Wait(t, "the bridge", limit, func() error {
			state, err := h.Try("networkctl status br-up --no-pager; networkctl status eth0 --no-pager")
			if on, left := address("br-up"), address("eth0"); err != nil || on != had || left != "" {
				return fmt.Errorf("br-up has %q, eth0 %q, wanted %q; %v\n%s", on, left, had, err, state)
			}
			if !strings.Contains(state, "/etc/systemd/network/05-hostler-br-up.network") || !strings.Contains(strings.ReplaceAll(state, "DHCPv4", "DHCP4"), "DHCP4 via") {
				return fmt.Errorf("networkd does not lead the bridge: %s", state)
			}
			if now := client("br-up"); now != id {
				return fmt.Errorf("the bridge's identifier is %q, the NIC's was %q", now, id)
			}
			return nil
		})
	}
	h.Sh("systemd-run -q --unit=hostlerd --property=Type=notify --property=KillMode=process /usr/bin/hostlerd")
	h.Write("/root/own.yaml", "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [eth0]}}\n")
	h.Sh("hostler apply -f /root/own.yaml --confirm 1m")
	harness.Wait(t, "the watchdog's unit", time.Minute, func() error {
		out, err := h.Try("systemctl list-units --no-legend 'hostler-watchdog-*' && hostler status")
		if err != nil || !strings.Contains(out, "hostler-watchdog-") || !strings.Contains(out, "waits for `hostler confirm`") {
			return fmt.Errorf("%s, %v", out, err)
		}
		return nil
	})
	if got := files(); got != before {
		t.Errorf("before the change is kept there are files:\n%s", got)
	}
	h.Sh("hostler confirm")
	bridged(time.Minute)
	if out := h.Sh("grep -c ^IAID= /etc/systemd/network/05-hostler-br-up.network"); strings.TrimSpace(out) != "2" {
		t.Errorf("the bridge's file has no IAID of the NIC: %s", out)
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(files(), line) {
			t.Errorf("a file was changed: %s", line)
		}
	}
	// The host boots again, without the agent.
	h.Reboot()
	bridged(2 * time.Minute)
	h.Sh("systemd-run -q --unit=hostlerd --property=Type=notify --property=KillMode=process /usr/bin/hostlerd")
	harness.Wait(t, "the network", time.Minute, func() error {
		if out, err := h.Try("hostler get networks"); err != nil || !strings.Contains(out, "ready") {
			return fmt.Errorf("%s, %v", out, err)
		}
		return nil
	})
	bridged(time.Minute)
	h.Sh("hostler delete declaration/own --wait --timeout 2m")
	harness.Wait(t, "the NIC's own address", time.Minute, func() error {
		if on := address("eth0"); on != had {
			return fmt.Errorf("eth0 has %q, wanted %q", on, had)
		}
		return nil
	})
	if after := files(); after != before {
		t.Errorf("the files were\n%s\nand are\n%s", before, after)
	}
}
