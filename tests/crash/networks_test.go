//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/hostnet/nettest"
	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

const (
	netFirst  = "version: 1\nnetworks: {lan: {bridge: br-crash, addresses: [10.223.1.1/24], forwarding: true, nat: true, dhcp: true}}\n"
	netSecond = "version: 1\nnetworks: {lan: {bridge: br-crash, addresses: [10.223.2.1/24], forwarding: true, nat: true, dhcp: true}}\n"
)

// Killed at each point of a network's making, changing and mending, the agent
// that comes after it makes just that network, and takes all of it away.
func TestNetworkCrashPoints(t *testing.T) {
	binaries(t)
	for _, point := range failpoint.Networks {
		for _, action := range []string{"kill", "error"} {
			t.Run(string(point)+"="+action, func(t *testing.T) { networkCrash(t, string(point), action) })
		}
	}
	// The host forwards no more, and the rules are still there.
	t.Run("the end", func(t *testing.T) { networkCrash(t, string(failpoint.NetForwardingChanged), "kill#2") })
}

func networkCrash(t *testing.T, point, action string) {
	n := nettest.New(t)
	sh := func(script string) string { return n.Run("/bin/sh", "-c", script) }
	looks := func() string {
		return sh(`ip -o link | sed 's/^[0-9]*: //; s/@.*//' ; ip -o addr | grep -v fe80 | sed 's/^[0-9]*: //; s/ valid_lft.*//'
ip route; nft -s list ruleset | sed 's/hostler:[^"]*//'; cat /proc/sys/net/ipv4/ip_forward`)
	}
	n.Sysctl("net/ipv4/ip_forward=0") // a new namespace may have it as the host does
	before := looks()
	a := harness.NewAgent(t, t.TempDir())
	a.Configure("namespace: crash\n")
	a.Prefix = []string{"nsenter", "--net=" + n.Path(), "--"}
	hits := filepath.Join(a.Dir, "hits")
	clean := a.Env
	a.Env = append(slices.Clone(clean), "HOSTLER_FAILPOINTS="+point+"="+action, "HOSTLER_FAILPOINT_LOG="+hits)
	deaths := 0
	// until looks repeatedly, and starts the agent where it has died.
	until := func(what string, look func() error) {
		t.Helper()
		harness.Wait(t, what, patience, func() error {
			if a.Exited() {
				deaths++
				a.Env = clean
				a.Launch("failpoint")
			}
			return look()
		})
	}
	apply := func(yaml string) {
		t.Helper()
		file := a.File("site", yaml)
		until("the declaration", func() error { _, err := a.Try("apply", "--allow", "destroy", "-f", file); return err })
	}
	ready := func(address string) {
		t.Helper()
		until("the network", func() error {
			out, err := a.Try("get", "networks")
			if err == nil && !strings.Contains(out, " ready ") {
				err = fmt.Errorf("%s", out)
			}
			if text := looks(); err == nil && (!strings.Contains(text, address) || strings.Count(text, "masquerade") != 3 ||
				!strings.Contains(sh("ip route"), strings.Replace(address, ".1/24", ".0/24", 1)) || strings.Count(sh("ip -o link show type bridge"), "alias hostler:crash:") != 1) {
				err = fmt.Errorf("half a network:\n%s", text)
			}
			return err
		})
	}
	a.Launch("failpoint")
	apply(netFirst)
	ready("10.223.1.1/24")
	sh("ip route del 10.223.1.0/24 dev br-crash")
	ready("10.223.1.1/24")
	apply(netSecond)
	ready("10.223.2.1/24")
	until("the end", func() error {
		_, err := a.Try("delete", "declaration/site", "--wait", "--timeout", "10s")
		if out, ask := a.Try("get", "all", "-o", "name"); err != nil && (ask != nil || strings.TrimSpace(out) != "") {
			return fmt.Errorf("%w, left: %s", err, out)
		}
		return nil
	})
	until("nothing to be left", func() error {
		if now := looks(); now != before {
			return fmt.Errorf("it was\n%s\nand is\n%s", before, now)
		}
		return nil
	})
	if text, _ := os.ReadFile(hits); !strings.Contains(string(text), point) {
		t.Errorf("the point was never hit")
	}
	if want := map[string]int{"kill": 1, "kill#2": 1, "error": 0}[action]; deaths != want {
		t.Errorf("the agent died %d times, want %d:\n%s", deaths, want, a.Log())
	}
	if left, _ := filepath.Glob(a.Dir + "/state/dhcp/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
