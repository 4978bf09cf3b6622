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
