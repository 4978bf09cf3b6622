//go:build integration

package networks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// repaired is the longest time until a foreign change is repaired.
const repaired = 5 * time.Second

const alone = `version: 1
networks:
  lan: {bridge: br-hlan, addresses: [10.221.7.1/24, "fd00:221:7::1/64"], mtu: 1400, forwarding: true, proxy-arp: true, nat: true, dhcp: true}
`

// bare returns an agent without an LXD, on a network of its own.
func bare(t testing.TB) (*harness.Agent, *nettest.Namespace) {
	t.Helper()
	n := nettest.New(t)
	a := harness.NewAgent(t, t.TempDir())
	a.Configure("namespace: nets\n")
	a.Prefix = []string{"nsenter", "--net=" + n.Path(), "--"}
	a.Start()
	clean(t, a)
	return a, n
}

func sh(n *nettest.Namespace, script string) string { return n.Run("/bin/sh", "-c", script) }

// snapshot is all that a declared network is on the host.
func snapshot(n *nettest.Namespace) string {
	return sh(n, `
ip -o addr show dev br-hlan | sed 's/.*br-hlan *//; s/ valid_lft.*//; s/ tentative//' | grep -v fe80 | sort
ip -o link show br-hlan | grep -o 'mtu [0-9]*\|alias .*\|master .*\|link.ether [^ ]*'
nft list ruleset
cd /proc/sys/net; grep . ipv4/ip_forward ipv4/conf/br-hlan/proxy_arp ipv6/conf/br-hlan/accept_ra ipv6/conf/br-hlan/proxy_ndp ipv4/conf/br-hlan/rp_filter 2>&1 || true`)
}

// dnsmasq is the process that serves the agent's network, "" without one.
func dnsmasq(a *harness.Agent) string {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), "--conf-file="+a.Dir+"/") {
			return filepath.Base(filepath.Dir(path))
		}
	}
	return ""
}

// N12: dnsmasq serves the bridge that is there, not the one that was deleted.
func TestDHCPAfterTheBridgeIsDeleted(t *testing.T) {
	a, n := bare(t)
	a.Apply("site", alone)
	first := dnsmasq(a)
	sh(n, "ip link delete br-hlan")
	harness.Wait(t, "another dnsmasq", repaired, func() error {
		if now := dnsmasq(a); now == "" || now == first {
			return fmt.Errorf("%q serves DHCP, as %q did", now, first)
		}
		return nil
	})
	// It goes on as long as the bridge does.
	second := dnsmasq(a)
	sh(n, "ip addr del 10.221.7.1/24 dev br-hlan")
	harness.Wait(t, "the repair", repaired, func() error {
		if now := sh(n, "ip addr show dev br-hlan"); !strings.Contains(now, "10.221.7.1/24") {
			return fmt.Errorf("%s", now)
		}
		return nil
	})
	if now := dnsmasq(a); now != second {
		t.Errorf("%s became %s", second, now)
	}
}

// Every foreign change of a network is repaired within 5 s and reported as an
// event, and leaves nothing behind, however often it is made.
func TestDrift(t *testing.T) {
	a, n := bare(t)
	a.Apply("site", alone)
	want := snapshot(n)
	if dnsmasq(a) == "" {
		t.Fatal("nothing serves DHCP")
	}
	sh := func(command string) func() { return func() { sh(n, command) } }
	for _, drift := range []struct {
		name  string
		do    func()
		event string
	}{
		{"the bridge is deleted", sh("ip link delete br-hlan"), "make bridge br-hlan"},
		{"an address is removed", sh("ip addr del 10.221.7.1/24 dev br-hlan"), "add address 10.221.7.1/24"},
		{"an IPv6 address is removed", sh("ip addr del fd00:221:7::1/64 dev br-hlan"), "add address fd00:221:7::1/64"},
		{"a foreign address is added", sh("ip addr add 10.221.8.1/24 dev br-hlan"), "delete address 10.221.8.1/24"},
		{"the bridge is down", sh("ip link set br-hlan down"), "bring br-hlan up"},
		{"the reverse path filter is off", sh("echo 0 >/proc/sys/net/ipv4/conf/br-hlan/rp_filter"), "reverse path filter"},
		{"the MTU is changed", sh("ip link set br-hlan mtu 1300"), "MTU"},
		{"the rules are flushed", sh("nft flush ruleset"), "firewall"},
		{"the table is flushed", sh("nft flush table inet hostler_nets"), "firewall"},
		{"the table is deleted", sh("nft delete table inet hostler_nets"), "firewall"},
		{"a parameter is overwritten", sh("echo 0 >/proc/sys/net/ipv4/conf/br-hlan/proxy_arp; echo 1 >/proc/sys/net/ipv6/conf/br-hlan/accept_ra"), "kernel parameters"},
		{"dnsmasq is killed", func() { harness.Run(t, "kill", "-9", dnsmasq(a)) }, "dnsmasq"},
	} {
		t.Run(drift.name, func(t *testing.T) {
			before := len(eventsOf(t, a))
			began := time.Now()
			drift.do()
			harness.Wait(t, "the repair", repaired, func() error {
				if now := snapshot(n); now != want {
					return fmt.Errorf("it is\n%s\nwant\n%s", now, want)
				}
				if dnsmasq(a) == "" {
					return fmt.Errorf("nothing serves DHCP")
				}
				return nil
			})
			t.Logf("put right after %v", time.Since(began).Round(time.Millisecond))
			harness.Wait(t, "the event", repaired, func() error {
				if events := eventsOf(t, a)[before:]; !strings.Contains(strings.Join(events, "\n"), drift.event) {
					return fmt.Errorf("%q is not in %q", drift.event, events)
				}
				return nil
			})
		})
	}
}

// A hundred repairs leave no second rule and no file that grows.
func TestDriftAgainAndAgain(t *testing.T) {
	a, n := bare(t)
	a.Apply("site", alone)
	want, files := snapshot(n), sizes(t, a)
	for range 100 {
		sh(n, "nft flush ruleset; ip addr del 10.221.7.1/24 dev br-hlan")
		harness.Wait(t, "the repair", repaired, func() error {
			if now := snapshot(n); now != want {
				return fmt.Errorf("it is\n%s\nwant\n%s", now, want)
			}
			return nil
		})
	}
	if now := sizes(t, a); now != files {
		t.Errorf("files were\n%s\nand are\n%s", files, now)
	}
}

// sizes are those of the files that networks have, here and in /etc.
func sizes(t *testing.T, a *harness.Agent) string {
	return harness.Run(t, "sh", "-c", "find "+a.Dir+"/state/dhcp "+a.Dir+"/state/sysctl.json /etc/sysctl.d/60-hostler.conf -type f ! -name process -printf '%f %s\\n' | sort")
}

// eventsOf returns the events of the network.
func eventsOf(t *testing.T, a *harness.Agent) []string {
	t.Helper()
	// The table shows an event that comes again as one line.
	var events []struct{ Message string }
	if err := json.Unmarshal([]byte(a.Run("events", "network/lan", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}
	messages := make([]string, len(events))
	for i, e := range events {
		messages[i] = e.Message
	}
	return messages
}
