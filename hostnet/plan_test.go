package hostnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hostler/internal/fault"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func words(steps []Step) string {
	var lines []string
	for _, s := range steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}

// host returns a host with a NIC that has every kind of setting.
func host() Observed {
	return Observed{
		Links: []Link{
			{Name: "lo", Index: 1, Loopback: true, Up: true, MTU: 65536},
			{Name: "eth0", Index: 2, MAC: "52:54:00:00:00:01", MTU: 1400, Up: true},
		},
		Addresses: []Address{
			{Link: "eth0", Prefix: prefix("192.0.2.10/24")},
			{Link: "eth0", Prefix: prefix("2001:db8::10/64")},
			{Link: "eth0", Prefix: prefix("fe80::1/64")},
		},
		Routes: []Route{
			{Link: "eth0", Destination: prefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Table: 254, Protocol: 3, Type: 1, Metric: 100},
			{Link: "eth0", Destination: prefix("198.51.100.0/24"), Table: 254, Protocol: 3, Type: 1, Scope: 253},
			{Link: "eth0", Destination: prefix("192.0.2.0/24"), Table: 254, Protocol: 2, Type: 1, Scope: 253},
			{Link: "eth0", Destination: prefix("2001:db8::/64"), Table: 254, Protocol: 2, Type: 1, Metric: 256},
		},
	}
}

func TestPlanOrder(t *testing.T) {
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{
		{Name: "br-lan", UID: "u1", Addresses: []netip.Prefix{prefix("10.20.0.1/24")}, MTU: 9000},
		{Name: "br-up", UID: "u2", Ports: []string{"eth0"}},
	}}
	steps, problems := Plan(w, host())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := `make bridge br-lan
bring br-lan up
add address 10.20.0.1/24 to br-lan
set the reverse path filter of br-lan to strict
make bridge br-up
bring br-up up
add address 192.0.2.10/24 to br-up
add address 2001:db8::10/64 to br-up
add address fe80::1/64 to br-up
set the reverse path filter of br-up to loose
copy to br-up the neighbours of eth0
put eth0 under br-up
add route to 198.51.100.0/24 over br-up
delete route to 198.51.100.0/24 over eth0
add route to 0.0.0.0/0 by 192.0.2.1 metric 100 over br-up
delete route to 0.0.0.0/0 by 192.0.2.1 metric 100 over eth0
delete address 192.0.2.10/24 from eth0
delete address 2001:db8::10/64 from eth0
delete address fe80::1/64 from eth0
set the reverse path filter of br-up to off`
	if d := cmp.Diff(want, words(steps)); d != "" {
		t.Error(d)
	}
	for _, s := range steps {
		if s.UID == "u1" && s.Guarded || s.Op == Enslave && !s.Guarded {
			t.Errorf("%s: guarded %v", s, s.Guarded)
		}
		if s.Op == MakeBridge && s.Link == "br-up" && (s.MAC != "52:54:00:00:00:01" || s.MTU != 1400) {
			t.Errorf("the bridge does not take after its NIC: %+v", s)
		}
	}
}

func TestGiveBackOrder(t *testing.T) {
	o := host()
	had, err := Carry(o, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	w := Wanted{
		Namespace: "hostler", NICSettings: map[string]NICSettings{"eth0": had},
		Bridges: []Bridge{{Name: "br-up", UID: "u2", Ports: []string{"eth0"}}},
	}
	steps, _ := Plan(w, o)
	bridged := simulate(o, steps)
	w.Bridges = nil
	steps, _ = Plan(w, bridged)
	want := `add address 192.0.2.10/24 to eth0
add address 2001:db8::10/64 to eth0
add address fe80::1/64 to eth0
set the reverse path filter of br-up to loose
copy to eth0 the neighbours of br-up
add route to 198.51.100.0/24 over eth0
delete route to 198.51.100.0/24 over br-up
add route to 0.0.0.0/0 by 192.0.2.1 metric 100 over eth0
delete route to 0.0.0.0/0 by 192.0.2.1 metric 100 over br-up
delete route to 192.0.2.0/24 over br-up
delete route to 2001:db8::/64 metric 256 over br-up
take eth0 from br-up
delete address 192.0.2.10/24 from br-up
delete address 2001:db8::10/64 from br-up
remove bridge br-up`
	if d := cmp.Diff(want, words(steps)); d != "" {
		t.Error(d)
	}
	back := simulate(bridged, steps)
	if len(back.Links) != 2 || len(back.AddressesOf("eth0")) != 3 || len(back.RoutesOf("eth0")) != 4 {
		t.Errorf("the host is now %+v", back)
	}
}

// A hardware NIC without a record gets the undeclared addresses and routes of
// the bridge.
func TestGiveBackWithoutRecord(t *testing.T) {
	o := host()
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-up", UID: "u2", Ports: []string{"eth0"}, Addresses: []netip.Prefix{prefix("10.0.0.1/24")}}}}
	steps, _ := Plan(w, o)
	bridged := simulate(o, steps)
	if again, _ := Plan(w, bridged); len(again) > 0 {
		t.Errorf("without the record the second plan is\n%s", words(again))
	}
	w.Bridges[0].Ports = nil
	steps, _ = Plan(w, bridged)
	now := simulate(bridged, steps)
	if a := now.AddressesOf("eth0"); len(a) != 3 || len(now.AddressesOf("br-up")) != 2 { // its own and the link's
		t.Errorf("eth0 has %v, br-up has %v", a, now.AddressesOf("br-up"))
	}
}

func TestRefusals(t *testing.T) {
	base := func(l Link, more ...Link) Observed {
		o := host()
		o.Links = append(append(o.Links, l), more...)
		return o
	}
	for _, c := range []struct {
		name, nic, message string
		o                  Observed
		kind               fault.Kind
	}{
		{"missing", "eth9", "cannot bridge: there is no network device eth9", host(), fault.NotReady},
		{"loopback", "lo", "cannot bridge: lo is the loopback device", host(), fault.NeedsOperator},
		{"wireless", "wlan0", "cannot bridge: wlan0 is wireless, and an access point takes frames of one address only", base(Link{Name: "wlan0", Wireless: true}), fault.NeedsOperator},
		{"bridge", "br0", "cannot bridge: br0 is a bridge itself", base(Link{Name: "br0", Kind: "bridge"}), fault.NeedsOperator},
		{"bond member", "eth1", "cannot bridge: eth1 is a member of bond0; name bond0 instead", base(Link{Name: "eth1", Master: "bond0", MasterKind: "bond"}), fault.NeedsOperator},
		{"foreign bridge", "eth1", "cannot bridge: eth1 is already under br0, which is not hostler's", base(Link{Name: "eth1", Master: "br0", MasterKind: "bridge"}, Link{Name: "br0", Kind: "bridge"}), fault.NeedsOperator},
		{"open vswitch", "eth1", "cannot bridge: eth1 is already under ovs-system, which is not hostler's", base(Link{Name: "eth1", Master: "ovs-system", MasterKind: "openvswitch"}), fault.NeedsOperator},
		{"macvlan", "eth0", "cannot bridge: eth0 has mv0, and the kernel allows either that or a bridge", base(Link{Name: "mv0", Kind: "macvlan", Parent: "eth0"}), fault.NeedsOperator},
	} {
		err := refusal("hostler", c.o, c.nic)
		if err == nil || err.Error() != c.message || fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v (%s)", c.name, err, fault.KindOf(err))
		}
		steps, problems := Plan(Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-up", UID: "u", Ports: []string{c.nic}}}}, c.o)
		if len(problems) != 1 || words(steps) != "make bridge br-up\nbring br-up up\nset the reverse path filter of br-up to strict" {
			t.Errorf("%s: planned\n%s\nwith %v", c.name, words(steps), problems)
		}
	}
	o := host()
	o.Routes = append(o.Routes, Route{Link: "eth0", Destination: prefix("203.0.113.0/24"), Table: 254, Complex: "several next hops"})
	if _, err := Carry(o, "eth0"); err == nil || err.Error() != "cannot bridge: the route to 203.0.113.0/24 over eth0 has several next hops, which cannot be moved to a bridge" {
		t.Error(err)
	}
}

func TestConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		o       Observed
		b       Bridge
		message string
		kind    fault.Kind
	}{
		"no bridge":       {host(), Bridge{Name: "eth0", UID: "u"}, "cannot make bridge eth0: eth0 is no bridge", fault.Conflict},
		"foreign":         {Observed{Links: []Link{{Name: "br0", Kind: "bridge"}}}, Bridge{Name: "br0", UID: "u"}, "cannot make bridge br0: br0 is a bridge that is not hostler's", fault.Conflict},
		"other namespace": {Observed{Links: []Link{{Name: "br0", Kind: "bridge", Alias: "hostler:second:x"}}}, Bridge{Name: "br0", UID: "u"}, "cannot make bridge br0: br0 is a bridge of the hostler namespace second", fault.Conflict},
		"address":         {host(), Bridge{Name: "br0", UID: "u", Addresses: []netip.Prefix{prefix("192.0.2.10/25")}}, "cannot make bridge br0: the address 192.0.2.10 is on eth0", fault.Conflict},
		"long name":       {host(), Bridge{Name: "bridge-with-long", UID: "u"}, `cannot make bridge "bridge-with-long": the name of a network device has 1 to 15 characters, no space, slash or colon`, fault.Invalid},
	} {
		steps, problems := Plan(Wanted{Namespace: "hostler", Bridges: []Bridge{c.b}}, c.o)
		if len(steps) > 0 || len(problems) != 1 || problems[0].Err.Error() != c.message || !fault.Is(problems[0].Err, c.kind) {
			t.Errorf("%s: steps %q, problems %v", name, words(steps), problems)
		}
	}
}

// A bridge without its stamp but with the half-made group is taken over. An
// undeclared bridge is removed, and the step names the guests that it cuts off.
func TestHalfMadeAndUndeclared(t *testing.T) {
	o := Observed{Links: []Link{
		{Name: "br-a", Kind: "bridge", Group: halfMadeGroup("hostler"), MAC: bridgeMAC("hostler:hostler:u"), Up: true, MTU: 1500},
		{Name: "br-b", Kind: "bridge", Alias: "hostler:hostler:gone", MTU: 1500},
		{Name: "br-c", Kind: "bridge", Group: halfMadeGroup("hostler"), MTU: 1500},
		{Name: "br-d", Kind: "bridge", Alias: "hostler:second:u", MTU: 1500},
		{Name: "veth1", Kind: "veth", Master: "br-b", MasterKind: "bridge"},
	}}
	steps, problems := Plan(Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-a", UID: "u"}}}, o)
	want := "stamp bridge br-a\nset the reverse path filter of br-a to strict\nremove bridge br-b, which cuts off veth1\nremove bridge br-c"
	if words(steps) != want || len(problems) > 0 {
		t.Errorf("planned\n%s\n%v", words(steps), problems)
	}
}

// N12: a guest's port off its bridge is put back, also under a recreated
// bridge. Missing devices, devices without carrier and other kinds of devices
// with a port's name are left alone.
func TestGuestsRejoin(t *testing.T) {
	w := Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-lan", UID: "u", MTU: 9000, Guests: []string{"veth1", "hn02", "veth3", "eth0", "veth4", "gone"}}}}
	o := host()
	o.Links = append(o.Links,
		Link{Name: "veth1", Kind: "veth", Up: true, Carrier: true, MTU: 1500},
		Link{Name: "hn02", Kind: "tun", Up: true, Carrier: true, MTU: 9000, Master: "br-else", MasterKind: "bridge"},
		Link{Name: "veth3", Kind: "veth", Up: true, MTU: 1500},
		Link{Name: "veth4", Kind: "veth", Up: true, Carrier: true, MTU: 9000, Master: "br-lan", MasterKind: "bridge"},
		Link{Name: "veth5", Kind: "veth", Up: true, Carrier: true, MTU: 1500},
	)
	o.Links[5].Master, o.Links[5].MasterKind = "", "" // its bridge is gone
	steps, problems := Plan(w, o)
	want := `make bridge br-lan
bring br-lan up
put veth1 of a guest back under br-lan
set the MTU of br-lan to 9000
put hn02 of a guest back under br-lan
put veth4 of a guest back under br-lan
set the reverse path filter of br-lan to strict`
	if words(steps) != want || len(problems) > 0 {
		t.Errorf("planned\n%s\n%v", words(steps), problems)
	}
	o = simulate(o, steps)
	if again, _ := Plan(w, o); len(again) > 0 {
		t.Errorf("the second plan is\n%s", words(again))
	}
	for _, s := range steps {
		if s.Guarded {
			t.Errorf("%s is guarded", s)
		}
	}
}

func TestCarryKeepsMetrics(t *testing.T) {
	o := host()
	o.Routes[2].Metric = 100 // as a network manager sets it
	had, err := Carry(o, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if !had.Addresses[0].NoPrefixRoute || had.Addresses[1].NoPrefixRoute {
		t.Errorf("carried addresses %+v", had.Addresses)
	}
	if !slices.ContainsFunc(had.Routes, func(r Route) bool { return r.Metric == 100 && r.Destination == prefix("192.0.2.0/24") }) {
		t.Errorf("carried routes %+v", had.Routes)
	}
}

// For any state of the host, the second plan is empty, nothing foreign changes,
// and each address is on some link at every moment.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, w := drawHost(t), drawWanted(t)
		steps, problems := Plan(w, o)
		model := o.clone()
		carried := map[netip.Prefix]bool{}
		for _, c := range w.NICSettings {
			for _, a := range c.Addresses {
				carried[a.Prefix] = true
			}
		}
		for _, s := range steps {
			before, _ := model.Link(s.Link)
			model.change(s)
			_, isNIC := w.NICSettings[s.Link]
			for _, b := range w.Bridges {
				isNIC = isNIC || slices.Contains(b.Ports, s.Link)
			}
			if s.Op != MakeBridge && !isNIC && !Ours(w.Namespace, before) {
				t.Fatalf("%s changes what is not ours: %+v", s, before)
			}
			if s.Op == DeleteAddress && carried[s.Address.Prefix] && !slices.ContainsFunc(model.Addresses, func(a Address) bool { return a.Prefix == s.Address.Prefix }) && !s.Address.Prefix.Addr().IsLinkLocalUnicast() {
				t.Fatalf("after %s the host has the address no more\n%s", s, words(steps))
			}
		}
		again, stillProblems := Plan(w, model)
		if len(again) > 0 {
			t.Fatalf("the second plan is\n%s\nafter\n%s\nproblems %v", words(again), words(steps), stillProblems)
		}
		if len(problems) != len(stillProblems) {
			t.Fatalf("problems %v, then %v", problems, stillProblems)
		}
	})
}

func drawHost(t *rapid.T) Observed {
	o := Observed{Links: []Link{{Name: "lo", Index: 1, Loopback: true, Up: true, MTU: 65536}}}
	bridges := []string{""}
	for i, name := range []string{"br-a", "br-b", "br-c"} {
		if !rapid.Bool().Draw(t, name) {
			continue
		}
		l := Link{Name: name, Index: 10 + i, Kind: "bridge", MAC: "02:00:00:00:00:0" + fmt.Sprint(i), MTU: rapid.SampledFrom([]int{1400, 1500}).Draw(t, "mtu"), Up: rapid.Bool().Draw(t, "up"), STP: rapid.Bool().Draw(t, "stp")}
		switch rapid.IntRange(0, 3).Draw(t, "owner") {
		case 0:
			l.Alias = "hostler:hostler:u" + name
		case 1:
			l.Group = halfMadeGroup("hostler")
		case 2:
			l.Alias = "hostler:second:u"
		}
		o.Links = append(o.Links, l)
		bridges = append(bridges, name)
		if rapid.Bool().Draw(t, "addressed") {
			o.Addresses = append(o.Addresses, Address{Link: name, Prefix: prefix(fmt.Sprintf("10.9.%d.1/24", i))})
		}
	}
	for i, name := range []string{"eth0", "eth1"} {
		if rapid.IntRange(0, 4).Draw(t, name) == 0 {
			continue
		}
		master := rapid.SampledFrom(bridges).Draw(t, "master")
		l := Link{Name: name, Index: 20 + i, MAC: fmt.Sprintf("52:54:00:00:00:%02d", i), MTU: 1500, Up: rapid.Bool().Draw(t, "up"), Master: master}
		if master != "" {
			l.MasterKind = "bridge"
		}
		o.Links = append(o.Links, l)
		where := rapid.SampledFrom(append([]string{name}, bridges[1:]...)).Draw(t, "bearer")
		o.Addresses = append(o.Addresses, Address{Link: where, Prefix: prefix(fmt.Sprintf("192.0.2.%d/24", 10+i))})
		o.Routes = append(o.Routes, Route{Link: where, Destination: prefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Table: 254, Type: 1, Metric: uint32(i)})
	}
	return o
}

func drawWanted(t *rapid.T) Wanted {
	w := Wanted{Namespace: "hostler", NICSettings: map[string]NICSettings{}}
	for i, name := range []string{"br-a", "br-b", "br-c"} {
		if !rapid.Bool().Draw(t, "want "+name) {
			continue
		}
		b := Bridge{Name: name, UID: "u" + name, MTU: rapid.SampledFrom([]int{0, 1400, 1500}).Draw(t, "mtu")}
		if rapid.Bool().Draw(t, "declared") {
			b.Addresses = append(b.Addresses, prefix(fmt.Sprintf("10.8.%d.1/24", i)))
		}
		b.Ports = rapid.SampledFrom([][]string{nil, {"eth0"}, {"eth1"}, {"eth0", "eth1"}}).Draw(t, "ports")
		w.Bridges = append(w.Bridges, b)
	}
	for i, nic := range []string{"eth0", "eth1"} {
		w.NICSettings[nic] = NICSettings{
			MAC: fmt.Sprintf("52:54:00:00:00:%02d", i), MTU: 1500,
			Addresses: []Address{{Prefix: prefix(fmt.Sprintf("192.0.2.%d/24", 10+i))}},
			Routes:    []Route{{Destination: prefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Table: 254, Type: 1, Metric: uint32(i)}},
		}
	}
	return w
}

func simulate(o Observed, steps []Step) Observed {
	o = o.clone()
	for _, s := range steps {
		o.change(s)
	}
	return o
}

// N1 Z13: the primary NIC is the NIC of the best default route, not the first
// NIC that is up.
func TestPrimaryNIC(t *testing.T) {
	o := host()
	if got := o.PrimaryNIC(); got != "eth0" {
		t.Error(got)
	}
	o.Routes = append(o.Routes,
		Route{Link: "eth1", Destination: prefix("0.0.0.0/0"), Table: 254, Metric: 50},
		Route{Link: "eth2", Destination: prefix("::/0"), Table: 254},
		Route{Link: "eth3", Destination: prefix("0.0.0.0/0"), Table: 100})
	if got := o.PrimaryNIC(); got != "eth1" {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{2, 24, 0, 0, 1, 0, 0, 0, 8, 0, 1, 0, 192, 0, 2, 1})
	f.Add(make([]byte, 64))
	f.Fuzz(func(_ *testing.T, m []byte) {
		parseLink(m)
		parseAddress(m)
		parseRoute(m)
		parseNeighbour(m)
	})
}
