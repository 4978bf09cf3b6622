package hostnet

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// A NIC takes along what others added to the bridge, and leaves there the settings of
// the bridge's other NIC.
func TestANICLeavesTheSettingsOfTheOtherNIC(t *testing.T) {
	address := func(link, text string) Address { return Address{Link: link, Prefix: netip.MustParsePrefix(text)} }
	route := func(link, text, gateway string) Route {
		return Route{Link: link, Destination: netip.MustParsePrefix(text), Gateway: netip.MustParseAddr(gateway), Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
	}
	mac := "02:00:00:00:00:01"
	o := Observed{
		Links:     []Link{{Name: "br", Kind: "bridge", MAC: mac, Up: true}},
		Addresses: []Address{address("br", "192.0.2.10/24"), address("br", "192.0.2.200/32"), address("br", "192.0.2.20/24")},
		Routes:    []Route{route("br", "0.0.0.0/0", "192.0.2.1"), route("br", "203.0.113.0/24", "192.0.2.9")},
	}
	first := NICSettings{MAC: mac, Addresses: []Address{address("", "192.0.2.10/24")}, Routes: []Route{route("", "0.0.0.0/0", "192.0.2.1")}}
	second := NICSettings{MAC: "02:00:00:00:00:02", Addresses: []Address{address("", "192.0.2.20/24")}, Routes: []Route{route("", "203.0.113.0/24", "192.0.2.9")}}
	got := Leaving(first, []NICSettings{second}, o, "br", nil)
	if len(got.Addresses) != 2 || got.Addresses[1].Prefix != netip.MustParsePrefix("192.0.2.200/32") || len(got.Routes) != 1 {
		t.Errorf("the first NIC takes %v and %v", got.Addresses, got.Routes)
	}
	got = Leaving(second, []NICSettings{first}, o, "br", nil)
	if len(got.Addresses) != 1 || len(got.Routes) != 1 || got.Routes[0].Destination != netip.MustParsePrefix("203.0.113.0/24") {
		t.Errorf("the second NIC takes %v and %v", got.Addresses, got.Routes)
	}
}

// A bridge is only tuned while it has a spanning tree. Without, it forwards at once, whatever
// its forward delay is.
func TestABridgeWithASpanningTreeIsTuned(t *testing.T) {
	stamp := Stamp("hostler", "u1")
	for stp, want := range map[bool]int{false: 0, true: 1} {
		o := Observed{Links: []Link{{Name: "br-lan", Index: 3, Kind: "bridge", Alias: stamp, MAC: bridgeMAC(stamp), Up: true, STP: stp, ReversePath: strict}}}
		steps, problems := Plan(Wanted{Namespace: "hostler", Bridges: []Bridge{{Name: "br-lan", UID: "u1"}}}, o)
		if len(steps) != want || len(problems) > 0 || want > 0 && steps[0].Op != TuneBridge {
			t.Errorf("STP %v: %v, %v", stp, steps, problems)
		}
	}
}
