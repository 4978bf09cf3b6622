//go:build integration

package hostnet

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"hostler/hostnet/nettest"
)

// On a bridge over the host's NIC, addresses and routes that others add stay, and
// those that the NIC's manager removes are not put back. A formerly declared address
// goes. Put back is what the kernel drops with the bridge.
func TestTheNICsManagerRulesTheHostsBridge(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	uplink(n, peer)
	h := open(t, n)
	had, err := Carry(observe(t, h), "eth0")
	must(t, err)
	declared := netip.MustParsePrefix("10.20.0.1/24")
	w := Wanted{
		Namespace: "hostler", NICSettings: map[string]NICSettings{"eth0": had},
		Bridges: []Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}, Addresses: []netip.Prefix{declared}}},
	}
	settle(t, h, w)
	for _, change := range []string{
		"addr add 192.0.2.200/32 dev br-up",
		"addr del 192.0.2.10/24 dev br-up",
		"addr add 192.0.2.11/24 dev br-up",
		"route add default via 192.0.2.1 dev br-up metric 200",
		"route del default via 192.0.2.1 dev br-up metric 100",
	} {
		n.IP(change)
		if steps, _ := Plan(w, observe(t, h)); len(steps) > 0 {
			t.Errorf("after %s:\n%s", change, words(steps))
		}
	}
	n.IP("addr del 10.20.0.1/24 dev br-up")
	settle(t, h, w)
	if got := n.IP("-o addr show dev br-up"); !strings.Contains(got, "10.20.0.1/24") {
		t.Errorf("the declared address is gone: %s", got)
	}
	w.Bridges[0].Addresses, w.Bridges[0].Former = nil, []netip.Prefix{declared}
	settle(t, h, w)
	if got := n.IP("-o addr show dev br-up"); strings.Contains(got, "10.20.0.1/24") || !strings.Contains(got, "192.0.2.200/32") {
		t.Errorf("the formerly declared address stays: %s", got)
	}

	// The NIC takes along what the bridge has now.
	now := observe(t, h)
	w.NICSettings["eth0"], w.Bridges = Leaving(had, nil, now, "br-up", []netip.Prefix{declared}), nil
	settle(t, h, w)
	on, routes := n.IP("-o addr show dev eth0"), n.IP("route show default")
	if strings.Contains(on, "192.0.2.10/24") || !strings.Contains(on, "192.0.2.11/24") || !strings.Contains(on, "192.0.2.200/32") ||
		strings.TrimSpace(routes) != "default via 192.0.2.1 dev eth0 metric 200" {
		t.Errorf("eth0 has %s%s", on, routes)
	}
}

func TestTheHostsBridgeGetsBackWhatTheKernelDropped(t *testing.T) {
	// Nothing may have looked while the bridge was down.
	again := "link set br-up up"
	for _, drift := range [][]string{{"link set br-up down"}, {"link set br-up down", again}, {"link del br-up"}} {
		n, peer := nettest.New(t), nettest.New(t)
		uplink(n, peer)
		h := open(t, n)
		w := overUplink(t, h)
		settle(t, h, w)
		before := onBridge(n)
		for _, change := range drift {
			n.IP(change)
		}
		settle(t, h, w)
		if after := onBridge(n); before != after {
			t.Errorf("after %s:\n%s\nwas\n%s", drift, after, before)
		}
	}
}

// overUplink returns a bridge over eth0 and the settings that eth0 has.
func overUplink(t *testing.T, h *Host) Wanted {
	t.Helper()
	had, err := Carry(observe(t, h), "eth0")
	must(t, err)
	return Wanted{
		Namespace: "hostler", NICSettings: map[string]NICSettings{"eth0": had},
		Bridges: []Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}}},
	}
}

var indexes = regexp.MustCompile(`(?m)^\d+: `)

func onBridge(n *nettest.Namespace) string {
	// The kernel adds the routes of the table local some time later.
	return sorted(indexes.ReplaceAllString(n.IP("-o addr show dev br-up scope global"), "") + n.IP("route show table main") +
		n.IP("route show table 77") + n.IP("-6 route show dev br-up") + n.IP("neigh show nud permanent dev br-up"))
}

// The bridge treats router advertisements as the NIC did, from the beginning. Later the
// NIC's manager changes this.
func TestTheHostsBridgeTakesAdvertisementsLikeTheNIC(t *testing.T) {
	for _, exists := range []bool{false, true} {
		n, peer := nettest.New(t), nettest.New(t)
		uplink(n, peer) // with accept_ra 0
		n.Sysctl("net/ipv6/conf/eth0/use_tempaddr=2")
		h := open(t, n)
		had, err := Carry(observe(t, h), "eth0")
		must(t, err)
		w := Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-up", UID: "u"}}}
		if exists {
			settle(t, h, w)
		}
		w.NICSettings, w.Bridges[0].Ports = map[string]NICSettings{"eth0": had}, []string{"eth0"}
		steps := words(settle(t, h, w))
		set, up := strings.Index(steps, "set accept_ra of br-up to 0"), max(strings.Index(steps, "bring br-up up"), strings.Index(steps, "put eth0 under"))
		if set < 0 || set > up {
			t.Errorf("exists %v: %s", exists, steps)
		}
		read := func(name string) string {
			return strings.TrimSpace(n.Run("/usr/sbin/sysctl", "-n", "net/ipv6/conf/br-up/"+name))
		}
		if got := read("accept_ra") + read("autoconf") + read("use_tempaddr"); got != "012" {
			t.Errorf("exists %v: the parameters are %s", exists, got)
		}
		if had.IPv6 == nil {
			t.Error("the parameters are not recorded")
		}
		n.Sysctl("net/ipv6/conf/br-up/accept_ra=2")
		if steps, _ := Plan(w, observe(t, h)); len(steps) > 0 {
			t.Errorf("exists %v: then %s", exists, words(steps))
		}
	}
}

// If a program handles the advertisements for the NIC, the kernel does so for the
// bridge until that program serves it.
func TestTheKernelRenewsWhatAProgramRenewedForTheNIC(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	uplink(n, peer)
	n.IP("-6 route replace default via 2001:db8::1 dev eth0 proto ra metric 1024 expires 1800")
	h := open(t, n)
	w := overUplink(t, h)
	settle(t, h, w)
	if got := strings.TrimSpace(n.Run("/usr/sbin/sysctl", "-n", "net/ipv6/conf/br-up/accept_ra")); got != "1" {
		t.Errorf("accept_ra of the bridge is %s", got)
	}
}
