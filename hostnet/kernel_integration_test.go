//go:build integration

package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"hostler/hostnet/nettest"
	"hostler/internal/fault"
	"hostler/internal/run"
)

func open(t testing.TB, n *nettest.Namespace) *Host {
	t.Helper()
	h, err := Open(Options{NetNS: n.Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// settle plans and applies, and checks that the second plan is empty.
func settle(t testing.TB, h *Host, w Wanted) []Step {
	t.Helper()
	o := observe(t, h)
	steps, problems := Plan(w, o)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	for _, s := range steps {
		if err := h.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if again, problems := Plan(w, observe(t, h)); len(again)+len(problems) > 0 {
		t.Fatalf("the second plan is %v, problems %v, after %v", again, problems, steps)
	}
	return steps
}

func observe(t testing.TB, h *Host) Observed {
	t.Helper()
	o, err := h.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// state returns a namespace's state as an independent tool prints it.
func state(n *nettest.Namespace) string {
	return n.IP("-d -o link show") + n.IP("-o addr show") + n.IP("-4 route show table all") + n.IP("-6 route show table all")
}

var timers = regexp.MustCompile(`\S*_timer +\S+`)

func stable(n *nettest.Namespace) string {
	var kept []string
	for line := range strings.Lines(state(n)) {
		kept = append(kept, strings.Join(strings.Fields(timers.ReplaceAllString(line, "")), " "))
	}
	return strings.Join(kept, "\n")
}

func lan() Bridge {
	return Bridge{Name: "br-lan", UID: "u1", MTU: 1400, Addresses: []netip.Prefix{
		netip.MustParsePrefix("10.20.0.1/24"), netip.MustParsePrefix("fd00:20::1/64"),
	}}
}

// N12: a guest's port is put back under its bridge, whose MTU stays. Another
// device with a port's name is not touched.
func TestGuestsAreKeptOnTheirBridge(t *testing.T) {
	n, guest := nettest.New(t), nettest.New(t)
	n.Pair("veth1", guest, "eth0")
	n.IP("link add other type bridge")
	n.IP("link set other up")
	h := open(t, n)
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{lan()}}
	w.Bridges[0].MTU, w.Bridges[0].Guests = 2000, []string{"veth1", "other", "gone"}
	settle(t, h, w)
	for _, drift := range []string{"link del br-lan", "link set veth1 nomaster"} {
		n.IP(drift)
		settle(t, h, w)
		if under := n.IP("-o link show master br-lan"); !strings.Contains(under, "veth1") {
			t.Errorf("%s: under the bridge is %q", drift, under)
		}
	}
	if shown := n.IP("link show br-lan"); !strings.Contains(shown, "mtu 2000") {
		t.Error(shown)
	}
	// A port that disappeared before the step is ignored; another kind of device
	// is an error.
	step := Step{Op: Rejoin, UID: "u1", Link: "gone", Bridge: "br-lan"}
	if err := h.Apply(t.Context(), step); err != nil {
		t.Error(err)
	}
	step.Link = "other"
	if err := h.Apply(t.Context(), step); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
}

// F3: both ends of a pair that no guest has are removed. A pair whose other end a
// guest has got meanwhile stays.
func TestPairsWithoutAGuestAreRemoved(t *testing.T) {
	n, guest := nettest.New(t), nettest.New(t)
	n.IP("link add hn021122334455 type veth peer name veth1")
	n.Pair("hn021122334466", guest, "eth0")
	h := open(t, n)
	o := observe(t, h)
	for name, want := range map[string]string{"hn021122334455": "veth1", "veth1": "hn021122334455", "hn021122334466": ""} {
		if l, _ := o.Link(name); l.Pair != want {
			t.Errorf("the other end of %s is %q, not %q", name, l.Pair, want)
		}
	}
	step := Step{Op: RemovePair, UID: "u1", Link: "hn021122334455"}
	for range 2 {
		if err := h.Apply(t.Context(), step); err != nil {
			t.Error(err)
		}
	}
	step.Link = "hn021122334466"
	if err := h.Apply(t.Context(), step); err != nil {
		t.Errorf("the pair of a guest: %v", err)
	}
	if left := n.IP("-o link show type veth"); strings.Contains(left, "veth1@") || !strings.Contains(left, "hn021122334466@") {
		t.Error(left)
	}
}

func TestBridgeIsMadeKeptAndRemoved(t *testing.T) {
	n := nettest.New(t)
	// Foreign state that must not change.
	n.IP("link add docker0 type bridge")
	n.IP("addr add 172.17.0.1/16 dev docker0")
	n.IP("link set docker0 up")
	n.IP("route add 198.51.100.0/24 via 172.17.0.9 dev docker0")
	before := stable(n)
	h := open(t, n)
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{lan()}}
	settle(t, h, w)
	shown := n.IP("-d link show br-lan")
	for _, want := range []string{"stp_state 0", "forward_delay 0", "mtu 1400", "alias hostler:hostler:u1", bridgeMAC("hostler:hostler:u1"), "<NO-CARRIER,BROADCAST,MULTICAST,UP>"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in %s", want, shown)
		}
	}
	if addresses := n.IP("-o addr show dev br-lan"); !strings.Contains(addresses, "10.20.0.1/24 brd 10.20.0.255") || !strings.Contains(addresses, "fd00:20::1/64") || strings.Contains(addresses, "tentative") {
		t.Error(addresses)
	}
	if !strings.Contains(n.IP("-d link show br-lan"), "group default") {
		t.Error("the group of the making is still set")
	}
	// Drift of every kind.
	for _, drift := range []string{
		"addr del 10.20.0.1/24 dev br-lan", "link set br-lan down", "link set br-lan mtu 1300", "link del br-lan",
		"link set br-lan type bridge stp_state 1 forward_delay 1500", "link set br-lan address 02:00:00:00:00:77",
		"addr add 10.20.0.77/24 dev br-lan", "route del 10.20.0.0/24 dev br-lan", "-6 route del fd00:20::/64 dev br-lan",
	} {
		n.IP(drift)
		if steps := settle(t, h, w); len(steps) == 0 {
			t.Errorf("%s: nothing was planned", drift)
		}
	}
	// The first address of a network is removed, the second stays.
	w.Bridges[0].Addresses = append(w.Bridges[0].Addresses, netip.MustParsePrefix("10.20.0.2/24"))
	settle(t, h, w)
	w.Bridges[0].Addresses = w.Bridges[0].Addresses[1:]
	settle(t, h, w)
	w.Bridges = nil
	settle(t, h, w)
	if after := stable(n); after != before {
		t.Errorf("the host was\n%s\nand is\n%s", before, after)
	}
}

func TestForeignBridgeOfTheNameIsLeft(t *testing.T) {
	n := nettest.New(t)
	n.IP("link add br-lan type bridge")
	h := open(t, n)
	before := stable(n)
	steps, problems := Plan(Wanted{Namespace: "hostler", Bridges: []Bridge{lan()}}, observe(t, h))
	if len(steps) > 0 || len(problems) != 1 || !fault.Is(problems[0].Err, fault.Conflict) {
		t.Errorf("steps %v, problems %v", steps, problems)
	}
	for _, s := range []Step{
		{Op: RemoveBridge, Link: "br-lan", Stamp: "hostler:hostler:u1"},
		{Op: StampBridge, Link: "br-lan", Stamp: "hostler:hostler:u1"},
		{Op: MakeBridge, Link: "br-lan", Stamp: "hostler:hostler:u1", MAC: "02:00:00:00:00:01"},
	} {
		if err := h.Apply(t.Context(), s); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if after := stable(n); after != before {
		t.Errorf("the host was\n%s\nand is\n%s", before, after)
	}
}

// Applying every step twice has the same result as once.
func TestApplyTwice(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	uplink(n, peer)
	h := open(t, n)
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}}}}
	o := observe(t, h)
	had, err := Carry(o, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	w.NICSettings = map[string]NICSettings{"eth0": had}
	for range 2 {
		steps, _ := Plan(w, observe(t, h))
		for _, s := range steps {
			for range 2 {
				if err := h.Apply(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
		}
		if again, _ := Plan(w, observe(t, h)); len(again) > 0 {
			t.Errorf("the second plan is %v", again)
		}
		w.Bridges = nil
	}
}

// N13, N15: bonds, veth pairs and devices without addresses are observed
// correctly.
func TestObserve(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	uplink(n, peer)
	n.IP("link add br0 type bridge")
	n.IP("link add mv0 link eth0 type macvlan")
	n.IP("link set eth0 alias some:text")
	o := observe(t, open(t, n))
	eth0, _ := o.Link("eth0")
	if eth0.Kind != "veth" || eth0.MTU != 1400 || !eth0.Up || !eth0.Carrier || eth0.Alias != "some:text" || eth0.Parent != "" {
		t.Errorf("%+v", eth0)
	}
	if br0, _ := o.Link("br0"); br0.Kind != "bridge" || br0.Up {
		t.Errorf("%+v", br0)
	}
	if mv0, _ := o.Link("mv0"); mv0.Parent != "eth0" {
		t.Errorf("%+v", mv0)
	}
	if o.PrimaryNIC() != "eth0" || len(o.Neighbours) != 1 {
		t.Errorf("primary %q, neighbours %v", o.PrimaryNIC(), o.Neighbours)
	}
}

func TestWatchWakes(t *testing.T) {
	n := nettest.New(t)
	h := open(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	links, err := h.Watch(ctx, Network)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := h.Watch(ctx, Firewall)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		wakes <-chan Wake
		do    func()
	}{
		{links, func() { n.IP("link add br0 type bridge") }},
		{links, func() { n.IP("addr add 10.0.0.1/24 dev br0") }},
		// Only the netconf group reports changes by sysctl(8).
		{links, func() { n.Sysctl("net/ipv4/conf/br0/rp_filter=2") }},
		{links, func() { n.Sysctl("net/ipv6/conf/br0/forwarding=1") }},
		{links, func() { n.IP("link del br0") }},
		{tables, func() { n.Run("/usr/sbin/nft", "add table inet foreign") }},
		{tables, func() { n.Run("/usr/sbin/nft", "flush ruleset") }},
	} {
		drain(c.wakes)
		c.do()
		select {
		case <-c.wakes:
		case <-time.After(5 * time.Second):
			t.Fatal("no wake in 5 s")
		}
	}
	cancel()
	for range links {
	}
	for range tables {
	}
}

func drain(wakes <-chan Wake) {
	for {
		select {
		case <-wakes:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

// F20: while another process creates and removes 120 links in a loop, nothing
// is concluded from a partial list, and nothing leaks.
func TestChurn(t *testing.T) {
	n := nettest.New(t)
	h := open(t, n)
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{lan()}}
	settle(t, h, w)
	ctx, cancel := context.WithCancel(t.Context())
	script := `while :; do i=0; while [ $i -lt 120 ]; do echo link add c$i type bridge; i=$((i+1)); done; i=0; while [ $i -lt 120 ]; do echo link del c$i; i=$((i+1)); done; done | ip -batch -`
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.Runner().Run(ctx, run.Command{Path: "/bin/sh", Args: []string{"-c", script}})
	}()
	defer func() { cancel(); <-ended }()
	passes := 150
	if long {
		passes = 1000
	}
	for deadline := time.Now().Add(10 * time.Second); len(observe(t, h).Links) < 20; {
		if time.Now().After(deadline) {
			t.Fatal("the other process makes no links")
		}
	}
	files, interrupted, most := openFiles(t), 0, 0
	for range passes {
		o, err := h.Observe(t.Context())
		if err != nil {
			if fault.KindOf(err) != fault.Transient {
				t.Fatal(err)
			}
			interrupted++
			continue
		}
		most = max(most, len(o.Links))
		if steps, problems := Plan(w, o); len(steps)+len(problems) > 0 {
			t.Fatalf("planned %v, %v while others changed", steps, problems)
		}
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d open files before, %d after", files, now)
	}
	t.Logf("%d passes, %d given up as interrupted, up to %d links seen", passes, interrupted, most)
	if most < 20 || interrupted > passes/4 {
		t.Errorf("%d links at most, %d of %d passes given up", most, interrupted, passes)
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// uplink joins a host to a peer that serves as its gateway, with every kind of
// setting that a NIC can have.
func uplink(n, peer *nettest.Namespace) {
	for _, side := range []*nettest.Namespace{n, peer} {
		side.Sysctl("net/ipv6/conf/default/accept_dad=0") // else addresses are usable after a second only
	}
	n.Pair("eth0", peer, "gw0")
	for device, side := range map[string]*nettest.Namespace{"eth0": n, "gw0": peer} {
		side.IP(fmt.Sprintf("link set %s mtu 1400", device))
	}
	n.Sysctl("net/ipv4/conf/all/rp_filter=1")
	n.Sysctl("net/ipv6/conf/eth0/accept_ra=0")
	n.IP("addr add 192.0.2.10/24 dev eth0")
	n.IP("-6 addr add 2001:db8::10/64 dev eth0 nodad")
	n.IP("route add default via 192.0.2.1 dev eth0 metric 100 mtu 1300")
	n.IP("route add 198.51.100.0/24 dev eth0")
	n.IP("route add 203.0.113.0/24 via 192.0.2.1 dev eth0 table 77")
	n.IP("-6 route add default via 2001:db8::1 dev eth0 metric 1024")
	n.IP("neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
	peer.IP("addr add 192.0.2.1/24 dev gw0")
	peer.IP("-6 addr add 2001:db8::1/64 dev gw0 nodad")
	accepted(n)
}

// accepted waits until the kernel accepts packets to the IPv6 addresses of uplink,
// which is some time after they were added.
func accepted(n *nettest.Namespace) {
	for deadline := time.Now().Add(10 * time.Second); strings.Count(n.IP("-6 route show table local"), "local") < 3 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}
