//go:build integration

package firewall_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/hostnet"
	"hostler/hostnet/firewall"
	"hostler/hostnet/nettest"
	"hostler/internal/fault"
)

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func newFirewall(t *testing.T, n *nettest.Namespace, namespace string) *firewall.Firewall {
	t.Helper()
	f, err := firewall.New(namespace, n.Runner(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func apply(t *testing.T, f *firewall.Firewall, r firewall.Rules, want bool) {
	t.Helper()
	if held(t, f, r) && want {
		t.Error("the rules hold, though the table must change")
	}
	changed, err := f.Apply(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if changed != want {
		t.Errorf("changed %v, want %v", changed, want)
	}
	if !held(t, f, r) {
		t.Error("the rules do not hold after Apply")
	}
}

func held(t *testing.T, f *firewall.Firewall, r firewall.Rules) bool {
	t.Helper()
	ruleset, err := f.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ruleset.Holds(r)
}

func nft(n *nettest.Namespace, args ...string) string { return n.Run("/usr/sbin/nft", args...) }

func rules() firewall.Rules {
	return firewall.Rules{
		Networks: []firewall.Network{{Owner: "u1", Bridge: "br-lan", Subnets: prefixes("10.20.0.1/24", "fd00:20::1/64"), Forward: true, NAT: true, Services: true}},
		Publish:  []firewall.Publish{{Owner: "m1", Bridge: "br-lan", Protocol: "tcp", HostPort: 8080, Address: netip.MustParseAddr("10.20.0.10"), Port: 80}},
		Guests: []firewall.Guest{{Owner: "m1", Bridge: "br-lan", MAC: "02:00:00:00:00:10", Addresses: []netip.Addr{
			netip.MustParseAddr("10.20.0.10"), netip.MustParseAddr("fd00:20::10"),
		}}},
	}
}

// N3 N6 Z12: missing rules are written, once, and are removed without a trace.
func TestTableIsKept(t *testing.T) {
	n := nettest.New(t)
	nft(n, "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }; add rule ip filter FORWARD counter")
	before := nft(n, "list ruleset")
	f := newFirewall(t, n, "hostler")
	r := rules()
	apply(t, f, r, true)
	generation := nft(n, "-a", "list", "table", "inet", "hostler")
	apply(t, f, r, false)
	apply(t, newFirewall(t, n, "hostler"), r, false) // after a restart
	if again := nft(n, "-a", "list", "table", "inet", "hostler"); again != generation {
		t.Error("the second time wrote something")
	}
	// An agent that lost the record recovers the network's settings from the
	// table.
	ruleset, err := f.Observe(t.Context())
	known := ruleset.Recall([]firewall.Network{{Owner: "u1", Bridge: "br-lan", Subnets: r.Networks[0].Subnets}, {Owner: "u2", Bridge: "br-b"}})
	if err != nil || !reflect.DeepEqual(known, r.Networks) {
		t.Errorf("known are %+v, %v", known, err)
	}
	// Drift of every kind; a single pass repairs each.
	for _, drift := range []string{
		"flush ruleset; add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }; add rule ip filter FORWARD counter",
		"flush table inet hostler",
		"delete table inet hostler",
		"add rule inet hostler through drop",
		"add chain inet hostler more",
		"flush chain inet hostler hide",
	} {
		nft(n, drift)
		apply(t, f, r, true)
		apply(t, f, r, false)
	}
	// A rule changed in place, with its comment unchanged.
	listed := nft(n, "-a", "list", "chain", "inet", "hostler", "publish")
	for line := range strings.Lines(listed) {
		if rule, handle, ok := strings.Cut(strings.TrimSpace(line), " # handle "); ok && strings.Contains(rule, "8080") {
			nft(n, "replace rule inet hostler publish handle "+handle+" "+strings.Replace(rule, "8080", "9090", 1))
		}
	}
	apply(t, f, r, true)
	// The table of another namespace coexists.
	other := newFirewall(t, n, "second")
	apply(t, other, firewall.Rules{Networks: []firewall.Network{{Owner: "x", Bridge: "br-x"}}}, true)
	apply(t, f, r, false)
	for _, each := range []*firewall.Firewall{f, other} {
		for _, want := range []bool{true, false} {
			if changed, err := each.Remove(t.Context()); err != nil || changed != want {
				t.Errorf("removed %v, %v", changed, err)
			}
		}
	}
	if after := nft(n, "list ruleset"); after != before {
		t.Errorf("the firewall was\n%s\nand is\n%s", before, after)
	}
}

func TestForeignTableOfTheName(t *testing.T) {
	n := nettest.New(t)
	nft(n, "add table inet hostler; add chain inet hostler mine; add rule inet hostler mine drop")
	f := newFirewall(t, n, "hostler")
	if _, err := f.Apply(t.Context(), rules()); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if _, err := f.Remove(t.Context()); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if !strings.Contains(nft(n, "list ruleset"), "drop") {
		t.Error("the foreign table is gone")
	}
}

// A flushed table is restored within 5 s of the kernel's event.
func TestFlushIsRepaired(t *testing.T) {
	n := nettest.New(t)
	h, err := hostnet.Open(hostnet.Options{NetNS: n.Path()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	f := newFirewall(t, n, "hostler")
	apply(t, f, rules(), true)
	wakes, err := h.Watch(t.Context(), hostnet.Firewall)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	nft(n, "flush ruleset")
	for repaired := false; !repaired; {
		select {
		case <-wakes:
			if repaired, err = f.Apply(t.Context(), rules()); err != nil {
				t.Fatal(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("no wake in 5 s")
		}
	}
	t.Logf("repaired after %v", time.Since(start))
}

// One transaction with many rules, and their listing.
func TestManyNetworks(t *testing.T) {
	n := nettest.New(t)
	var r firewall.Rules
	for i := range 100 {
		b := fmt.Sprintf("br-%d", i)
		r.Networks = append(r.Networks, firewall.Network{Owner: "u" + b, Bridge: b, Subnets: prefixes(fmt.Sprintf("10.%d.0.1/24", i)), Forward: true, NAT: true, Services: true})
		for p := range 5 {
			r.Publish = append(r.Publish, firewall.Publish{Owner: "m" + b, Bridge: b, Protocol: "tcp", HostPort: uint16(1000 + 10*i + p), Address: netip.AddrFrom4([4]byte{10, byte(i), 0, 10}), Port: 80})
		}
	}
	f := newFirewall(t, n, "hostler")
	start := time.Now()
	apply(t, f, r, true)
	t.Logf("loaded in %v", time.Since(start))
	start = time.Now()
	apply(t, f, r, false)
	t.Logf("looked at in %v", time.Since(start))
}

// site is a host with a bridge and two guests, and a neighbour outside.
type site struct{ host, outside, guest, second *nettest.Namespace }

func newSite(t *testing.T) site {
	s := site{nettest.New(t), nettest.New(t), nettest.New(t), nettest.New(t)}
	for _, n := range []*nettest.Namespace{s.host, s.outside, s.guest, s.second} {
		n.Sysctl("net/ipv6/conf/default/accept_dad=0")
	}
	s.host.Pair("eth0", s.outside, "out0")
	s.host.IP("addr add 192.0.2.10/24 dev eth0")
	s.outside.IP("addr add 192.0.2.1/24 dev out0")
	s.outside.IP("route add 10.20.0.0/24 via 192.0.2.10")
	s.host.IP("link add br-lan type bridge forward_delay 0")
	s.host.IP("link set br-lan up")
	s.host.IP("addr add 10.20.0.1/24 dev br-lan")
	for i, g := range []*nettest.Namespace{s.guest, s.second} {
		port := fmt.Sprintf("g%d", i)
		s.host.Pair(port, g, "eth0")
		s.host.IP("link set " + port + " master br-lan")
		// A link that goes up makes its link-local address of its MAC address.
		g.IP("link set eth0 down")
		g.IP(fmt.Sprintf("link set eth0 address 02:00:00:00:00:%d", 10+i))
		g.IP("link set eth0 up")
		g.IP(fmt.Sprintf("addr add 10.20.0.%d/24 dev eth0", 10+i))
		g.IP("route add default via 10.20.0.1")
	}
	s.host.Sysctl("net/ipv4/ip_forward=1")
	s.host.Sysctl("net/ipv4/conf/br-lan/route_localnet=1")
	return s
}

// serve answers each connection with the client's address.
func serve(t *testing.T, n *nettest.Namespace, address string) {
	t.Helper()
	var l net.Listener
	if err := n.Do(func() (err error) { l, err = net.Listen("tcp4", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, host)
			_ = c.Close()
		}
	}()
}

// seen returns the client address that the server sees, or "" if the connection
// fails.
func seen(n *nettest.Namespace, from, to string) string {
	var answer string
	_ = n.Do(func() error {
		d := net.Dialer{Timeout: 700 * time.Millisecond}
		if from != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		}
		c, err := d.Dial("tcp4", to)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		data, _ := io.ReadAll(c)
		answer = string(data)
		return nil
	})
	return answer
}

// C12, D10: NAT, published ports and attempts to bypass them, and blocked
// traffic.
func TestTraffic(t *testing.T) {
	s := newSite(t)
	serve(t, s.guest, "10.20.0.10:80")
	serve(t, s.guest, "10.20.0.10:81")
	serve(t, s.outside, "192.0.2.1:90")
	serve(t, s.host, "0.0.0.0:22")
	f := newFirewall(t, s.host, "hostler")
	r := rules()
	apply(t, f, r, true)
	type try struct {
		what     string
		n        *nettest.Namespace
		from, to string
		want     string
	}
	check := func(tries ...try) {
		t.Helper()
		for _, c := range tries {
			if got := seen(c.n, c.from, c.to); got != c.want {
				t.Errorf("%s: the server sees %q, want %q", c.what, got, c.want)
			}
		}
	}
	check(
		try{"a guest reaches the outside by the host's address", s.guest, "", "192.0.2.1:90", "192.0.2.10"},
		try{"the outside reaches the published port", s.outside, "", "192.0.2.10:8080", "192.0.2.1"},
		try{"the host reaches it at its own address", s.host, "", "192.0.2.10:8080", "192.0.2.10"},
		try{"and at 127.0.0.1", s.host, "", "127.0.0.1:8080", "10.20.0.1"},
		try{"its neighbour reaches it by the host", s.second, "", "192.0.2.10:8080", "10.20.0.1"},
		try{"neighbours reach each other", s.second, "", "10.20.0.10:81", "10.20.0.11"},
		try{"the outside does not reach what is not published", s.outside, "", "10.20.0.10:81", ""},
		try{"nor at the host", s.outside, "", "192.0.2.10:81", ""},
		try{"a guest does not reach the host's services", s.guest, "", "10.20.0.1:22", ""},
	)
	// Where iptables also filters bridged frames, a guest's packet to itself
	// would have to leave through the port of its arrival.
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil {
		s.host.Sysctl("net/bridge/bridge-nf-call-iptables=0")
	}
	check(try{"a guest reaches itself by the host", s.guest, "", "192.0.2.10:8080", "10.20.0.1"})
	// A guest with another guest's address gets no answer, nor does a guest with
	// an address outside the network.
	s.second.IP("addr add 10.20.0.10/32 dev eth0")
	s.second.IP("addr add 198.51.100.5/32 dev eth0")
	check(
		try{"a guest in another's name", s.second, "10.20.0.10", "192.0.2.1:90", ""},
		try{"a guest from nowhere", s.second, "198.51.100.5", "192.0.2.1:90", ""},
	)
	s.second.IP("addr del 10.20.0.10/32 dev eth0")
	// Ingress limited to sources: other sources are blocked.
	r.Ingress = []firewall.Ingress{{Owner: "m1", Bridge: "br-lan", Address: netip.MustParseAddr("10.20.0.10"), Protocol: "tcp", First: 80, Last: 85, Sources: prefixes("192.0.2.0/28")}}
	apply(t, f, r, true)
	check(try{"ingress lets its source in", s.outside, "", "10.20.0.10:81", "192.0.2.1"})
	r.Ingress[0].Sources = prefixes("192.0.2.128/25")
	apply(t, f, r, true)
	check(try{"ingress lets no other in", s.outside, "", "10.20.0.10:81", ""})
	// A port published for some sources only.
	r.Publish[0].Sources = prefixes("198.51.100.0/24")
	apply(t, f, r, true)
	check(try{"published for others", s.outside, "", "192.0.2.10:8080", ""})
	// Without forwarding, guests cannot leave the host; the port stays
	// published.
	r = rules()
	r.Networks[0].Forward = false
	apply(t, f, r, true)
	check(try{"no forwarding", s.guest, "", "192.0.2.1:90", ""},
		try{"published without forwarding", s.outside, "", "192.0.2.10:8080", "192.0.2.1"})
	// Routed without NAT, and with the host open to guests.
	r = rules()
	r.Networks[0].NAT, r.Networks[0].HostAccess = false, true
	apply(t, f, r, true)
	check(try{"routed", s.guest, "", "192.0.2.1:90", "10.20.0.10"},
		try{"routed inwards", s.outside, "", "10.20.0.10:81", "192.0.2.1"},
		try{"the open host", s.guest, "", "10.20.0.1:22", "10.20.0.10"})
}

// With route_localnet, a guest's datagram could reach the host's loopback
// address.
func TestLoopbackIsClosedToGuests(t *testing.T) {
	s := newSite(t)
	s.guest.Sysctl("net/ipv4/conf/eth0/route_localnet=1")
	s.guest.IP("route del local 127.0.0.0/8 dev lo table local")
	s.guest.IP("route del local 127.0.0.1 dev lo table local")
	s.guest.IP("route add 127.0.0.0/8 via 10.20.0.1 src 10.20.0.10")
	var in net.PacketConn
	if err := s.host.Do(func() (err error) { in, err = net.ListenPacket("udp4", "127.0.0.1:23"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	arrives := func() bool {
		err := s.guest.Do(func() error {
			c, err := net.Dial("udp4", "127.0.0.1:23")
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_, err = c.Write([]byte("x"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = in.SetReadDeadline(time.Now().Add(time.Second))
		_, _, err = in.ReadFrom(make([]byte, 8))
		return err == nil
	}
	if !arrives() {
		t.Fatal("without the rules nothing arrives either")
	}
	apply(t, newFirewall(t, s.host, "hostler"), rules(), true)
	if arrives() {
		t.Error("the guest reaches the host's loopback")
	}
}

// A foreign drop is reported and left unchanged, and the reported command mends
// it.
func TestForeignDrop(t *testing.T) {
	s := newSite(t)
	serve(t, s.outside, "192.0.2.1:90")
	nft(s.host, "add table ip filter; add chain ip filter DOCKER-USER; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }; add rule ip filter FORWARD jump DOCKER-USER")
	before := nft(s.host, "list table ip filter")
	f := newFirewall(t, s.host, "hostler")
	apply(t, f, rules(), true)
	if got := seen(s.guest, "", "192.0.2.1:90"); got != "" {
		t.Fatalf("the drop does not drop: %q", got)
	}
	ruleset, err := f.Observe(t.Context())
	found := ruleset.Findings(rules())
	if err != nil || len(found) != 2 || found[0].Chain != "FORWARD" || found[0].Table != "ip filter" {
		t.Fatalf("%v, %v", found, err)
	}
	if after := nft(s.host, "list table ip filter"); after != before {
		t.Errorf("the foreign table was\n%s\nand is\n%s", before, after)
	}
	for _, finding := range found {
		words := strings.Fields(finding.Mend[0])
		if !slices.Equal(words[:3], []string{"iptables", "-I", "DOCKER-USER"}) {
			t.Fatal(finding)
		}
		nft(s.host, "insert rule ip filter DOCKER-USER "+map[string]string{"-i": "iifname ", "-o": "oifname "}[words[3]]+words[4]+" accept")
	}
	if got := seen(s.guest, "", "192.0.2.1:90"); got != "192.0.2.10" {
		t.Errorf("after the mend the server sees %q", got)
	}
	if ruleset, err = f.Observe(t.Context()); err != nil || len(ruleset.Findings(rules())) > 0 {
		t.Errorf("%v, %v", ruleset.Findings(rules()), err)
	}
}
