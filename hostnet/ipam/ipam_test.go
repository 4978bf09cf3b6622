package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"hostler/internal/fault"
)

var start = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func network(name string, addresses ...string) Network {
	n := Network{Name: name}
	for _, a := range addresses {
		n.Addresses = append(n.Addresses, netip.MustParsePrefix(a))
	}
	return n
}

func owner(i int) Owner { return Owner{Machine: fmt.Sprintf("m%d", i), NIC: "eth0"} }

func TestDeclare(t *testing.T) {
	p := NewPool([]Network{network("lan", "10.0.0.1/29", "fd00::1/64")}, State{})
	for range 2 {
		if err := p.Declare("lan", netip.MustParseAddr("10.0.0.3"), owner(1), start); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		network, address, message string
		kind                      fault.Kind
	}{
		{"lan", "10.0.0.3", "cannot give 10.0.0.3: the machine m1 has it", fault.Conflict},
		{"lan", "10.0.0.9", "cannot give 10.0.0.9: it is in none of the subnets of the network lan", fault.Invalid},
		{"lan", "10.0.0.0", "cannot give 10.0.0.0: it is the first or last address of 10.0.0.0/29", fault.Invalid},
		{"lan", "10.0.0.7", "cannot give 10.0.0.7: it is the first or last address of 10.0.0.0/29", fault.Invalid},
		{"lan", "10.0.0.1", "cannot give 10.0.0.1: it is the host's address on the network lan", fault.Conflict},
		{"lan", "fd00::", "cannot give fd00::: it is the first or last address of fd00::/64", fault.Invalid},
		{"wan", "10.0.0.3", "cannot give an address: there is no network wan", fault.NotReady},
	} {
		err := p.Declare(c.network, netip.MustParseAddr(c.address), owner(2), start)
		if err == nil || err.Error() != c.message || !fault.Is(err, c.kind) {
			t.Errorf("%s: %v", c.address, err)
		}
	}
	// A new address releases the old one, which only its former owner gets back
	// immediately.
	if err := p.Declare("lan", netip.MustParseAddr("10.0.0.4"), owner(1), start); err != nil {
		t.Fatal(err)
	}
	if err := p.Declare("lan", netip.MustParseAddr("10.0.0.3"), owner(2), start); err != nil {
		t.Fatal(err)
	}
}

func TestKeptReleasedAndUsedUp(t *testing.T) {
	networks := []Network{network("lan", "10.0.0.1/29")}
	p := NewPool(networks, State{})
	had := map[int]netip.Addr{}
	for i := range 5 {
		a, err := p.Allocate("lan", false, owner(i), start)
		if err != nil {
			t.Fatal(err)
		}
		had[i] = a
	}
	_, err := p.Allocate("lan", false, owner(9), start)
	if err == nil || err.Error() != "cannot choose an address: the subnet 10.0.0.0/29 of the network lan is used up" || !fault.Is(err, fault.NeedsOperator) {
		t.Error(err)
	}
	if _, err := p.Allocate("lan", true, owner(9), start); err == nil || err.Error() != "cannot choose an address: the network lan has no IPv6 subnet" {
		t.Error(err)
	}
	// After a restart all owners keep their addresses.
	data, err := json.Marshal(p.State())
	if err != nil {
		t.Fatal(err)
	}
	var state State
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	p = NewPool(networks, state)
	for i := range 5 {
		if a, err := p.Allocate("lan", false, owner(i), start); err != nil || a != had[i] {
			t.Errorf("owner %d has %v, had %v: %v", i, a, had[i], err)
		}
	}
	// An owner leaves: its address rests, and only this owner gets it back.
	owners := map[Owner]bool{}
	for i := range 4 {
		owners[owner(i)] = true
	}
	p.Retain(owners, start)
	if a, err := p.Allocate("lan", false, owner(9), start.Add(Quarantine-time.Second)); err == nil {
		t.Errorf("%v was given out in its quarantine", a)
	}
	if a, err := p.Allocate("lan", false, owner(4), start.Add(time.Second)); err != nil || a != had[4] {
		t.Errorf("its former holder gets %v: %v", a, err)
	}
	p.Retain(owners, start)
	if a, err := p.Allocate("lan", false, owner(9), start.Add(Quarantine)); err != nil || a != had[4] {
		t.Errorf("after the quarantine %v: %v", a, err)
	}
	p.Retain(nil, start)
	p.Prune(start.Add(2 * Quarantine))
	if s := p.State(); len(s.Grants) > 0 {
		t.Errorf("left over %v", s)
	}
}

func TestReservedAndMovedSubnets(t *testing.T) {
	n := network("lan", "10.0.0.1/24", "fd00::1/64")
	n.Reserved = []Range{{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("10.0.0.199")}, {netip.MustParseAddr("fd00::"), netip.MustParseAddr("fd00::ffff:ffff")}}
	p := NewPool([]Network{n}, State{})
	if a, err := p.Allocate("lan", false, owner(1), start); err != nil || a.String() != "10.0.0.200" {
		t.Error(a, err)
	}
	if a, err := p.Allocate("lan", true, owner(1), start); err != nil || a.String() != "fd00::1:0:0" {
		t.Error(a, err)
	}
	p = NewPool([]Network{network("lan", "10.9.0.1/24")}, p.State())
	if a, err := p.Allocate("lan", false, owner(1), start); err != nil || a.String() != "10.9.0.2" {
		t.Error(a, err)
	}
}

func TestClashAndOverlap(t *testing.T) {
	routes := []HostRoute{{netip.MustParsePrefix("0.0.0.0/0"), "eth0"}, {netip.MustParsePrefix("10.0.0.0/16"), "eth1"}}
	if err := Clash(network("lan", "10.1.0.1/24"), routes); err != nil {
		t.Error(err)
	}
	err := Clash(network("lan", "10.0.3.1/24"), routes)
	if err == nil || err.Error() != "cannot use the subnet 10.0.3.0/24 for the network lan: the host reaches 10.0.0.0/16 over eth1" || !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if err := Overlap([]Network{network("a", "10.0.0.1/24", "fd00::1/64"), network("b", "10.0.1.1/24")}); err != nil {
		t.Error(err)
	}
	err = Overlap([]Network{network("a", "10.0.0.1/16"), network("c", "10.0.9.1/24"), network("b", "10.1.0.1/24")})
	if err == nil || err.Error() != "cannot use the subnet 10.0.9.0/24 for the network c: it overlaps 10.0.0.0/16 of the network a" {
		t.Error(err)
	}
}

// For any sequence of operations, no two owners share an address, no address is
// reused before its quarantine ends, and owners keep their addresses.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := network("lan", "10.0.0.1/28", "fd00::1/124")
		p := NewPool([]Network{n}, State{})
		now := start
		holders := map[netip.Addr]Owner{}
		released := map[netip.Addr]time.Time{}
		former := map[netip.Addr]Owner{}
		drop := func(a netip.Addr) {
			released[a], former[a] = now, holders[a]
			delete(holders, a)
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			o := owner(rapid.IntRange(0, 20).Draw(t, "owner"))
			six := rapid.Bool().Draw(t, "six")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				a, err := p.Allocate("lan", six, o, now)
				if err != nil {
					continue
				}
				if h, ok := holders[a]; ok && h != o {
					t.Fatalf("%v is of %v and %v", a, h, o)
				}
				if at, ok := released[a]; ok && former[a] != o && now.Sub(at) < Quarantine {
					t.Fatalf("%v is reused after %v", a, now.Sub(at))
				}
				if a.Is6() != six || n.host(a) {
					t.Fatalf("got %v", a)
				}
				for other, h := range holders {
					if h == o && other.Is6() == six && other != a {
						t.Fatalf("%v had %v and gets %v", o, other, a)
					}
				}
				holders[a] = o
				delete(released, a)
			case 2:
				a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 16).Draw(t, "address"))})
				if err := p.Declare("lan", a, o, now); err != nil {
					continue
				}
				if h, ok := holders[a]; ok && h != o {
					t.Fatalf("%v is of %v and was declared by %v", a, h, o)
				}
				for other, h := range holders {
					if h == o && other.Is4() && other != a {
						drop(other)
					}
				}
				holders[a] = o
				delete(released, a)
			case 3:
				keep := map[Owner]bool{}
				for a, h := range holders {
					if h != o {
						keep[h] = true
					} else {
						drop(a)
					}
				}
				p.Retain(keep, now)
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "seconds")) * time.Second)
				p.Prune(now)
			}
			p = NewPool([]Network{n}, p.State())
		}
	})
}
