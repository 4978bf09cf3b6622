//go:build integration

package networks

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/tests/harness"
)

const attacked = `version: 1
networks:
  lan: {bridge: br-hlan, addresses: [10.221.7.1/24, "fd00:221:7::1/64"], forwarding: true, nat: true, dhcp: true}
machines:
  thief:
    type: lxd
    image: "lxd:tiny"
    networks: {eth0: {network: lan, address: 10.221.7.10/24}}
  victim:
    type: lxd
    image: "lxd:tiny"
    networks: {eth0: {network: lan, address: 10.221.7.11/24}}
`

// A machine on LXD speaks with its own addresses alone, on a host whose bridges
// hand nothing to the tables for IP: all else is dropped at its port.
// Attack: network
func TestLXDMachineCannotSpoofAddresses(t *testing.T) {
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		path := "/proc/sys/net/bridge/bridge-nf-call-" + name
		if was, err := os.ReadFile(path); err == nil {
			if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.WriteFile(path, was, 0o644) })
		}
	}
	s, a := both(t)
	a.Run("apply", "--allow", "destroy", "-f", a.File("site", attacked), "--wait", "--timeout", "2m")
	mac := func(machine string) string {
		var i api.Instance
		if err := s.API(http.MethodGet, "/1.0/instances/"+machine, nil, &i); err != nil {
			t.Fatal(err)
		}
		port := i.Config["volatile.eth0.host_name"]
		if want := "hn" + strings.ReplaceAll(i.Devices["eth0"]["hwaddr"], ":", ""); port != want {
			t.Errorf("the port of %s is %q, not %q", machine, port, want)
		}
		return i.Devices["eth0"]["hwaddr"]
	}
	thief, victim := mac("thief"), mac("victim")
	guests := networks(t, a)["lan"].Guests
	six := func(machine string) string {
		for _, address := range guests[machine+"/eth0"] {
			if strings.Contains(address, ":") {
				return strings.Split(address, "/")[0]
			}
		}
		t.Fatalf("%s has no address of IPv6: %v", machine, guests)
		return ""
	}
	sh := func(machine, script string) error {
		out, err := a.Try("exec", machine, "--", "sh", "-c", script)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", machine, out, err)
		}
		return nil
	}
	must := func(machine, script string) {
		t.Helper()
		harness.Wait(t, machine+" to succeed", 20*time.Second, func() error { return sh(machine, script) })
	}
	// Its own addresses pass: IPv4 by DHCP, IPv6 added by hand.
	must("victim", "ip -4 addr show eth0 | grep -q 10.221.7.11/")
	for _, machine := range []string{"thief", "victim"} {
		must(machine, "ip -6 addr add "+six(machine)+"/64 dev eth0 2>/dev/null; ping -6 -c 1 -W 1 fd00:221:7::1")
		must(machine, "ping -c 1 -W 1 10.221.7.1")
	}
	must("victim", "ping -c 1 -W 1 10.221.7.10 && ping -6 -c 1 -W 1 "+six("thief"))
	// Other addresses get no answer: another guest's, an unused and an IPv6 address.
	for _, address := range []string{"10.221.7.77", "fd00:221:7::77"} {
		must("thief", "ip addr add "+address+"/128 dev eth0 2>/dev/null || ip addr add "+address+"/32 dev eth0")
		family, host := "-4", "10.221.7.1"
		if strings.Contains(address, ":") {
			family, host = "-6", "fd00:221:7::1"
		}
		if err := sh("thief", fmt.Sprintf("ping %s -c 2 -W 1 -I %s %s", family, address, host)); err == nil {
			t.Errorf("the machine is answered at %s", address)
		}
		if err := sh("victim", fmt.Sprintf("ping %s -c 2 -W 1 %s", family, address)); err == nil {
			t.Errorf("its neighbour reaches the machine at %s", address)
		}
	}
	// In the neighbour's name DHCP does not hear it.
	if err := sh("thief", "ip link set eth0 down; ip link set eth0 address "+victim+"; ip link set eth0 up; udhcpc -n -q -t 2 -T 1 -i eth0 -s /bin/true"); err == nil {
		t.Error("DHCP answers the machine in its neighbour's name")
	}
	must("thief", "ip link set eth0 down; ip link set eth0 address "+thief+"; ip link set eth0 up; udhcpc -n -q -t 3 -T 1 -i eth0 -s /bin/true")
	must("victim", "ping -c 1 -W 1 10.221.7.1")
	gone(t, a)
	if out, err := harness.Try(nil, "nft", "list", "table", "bridge", "hostler_nets"); err == nil {
		t.Errorf("there is still\n%s", out)
	}
}
