package dhcp

import (
	"net/netip"
	"testing"
)

// A recorded address goes to its new owner in spite of an old lease. Leases
// from ranges stay, and so does the server's own DUID.
func TestLeasesOfTheRecordsAreForgotten(t *testing.T) {
	n := lan()
	n.Ranges = []Range{{addr("10.20.0.190"), addr("10.20.0.220")}, {addr("fd00::1:0"), addr("fd00::1:ff")}}
	n.Hosts[0].Addresses = []netip.Addr{addr("10.20.0.205")}
	text := `0 02:00:00:00:00:10 10.20.0.10 web *
1900000000 02:00:00:00:00:99 10.20.0.200 guest 01:02:00:00:00:00:99
1900000000 02:00:00:00:00:98 10.20.0.205 guest 01:02:00:00:00:00:98
1900000000 02:00:00:00:00:11 10.20.0.11 db *
duid 00:01:00:01:2c:aa:bb:cc:02:00:00:00:00:01
1900000000 12347 fd00::11 db 00:01:00:01:cc
0 12345 fd00::10 web 00:01:00:01:aa
1900000000 12346 fd00::1:1 * 00:01:00:01:bb
`
	want := `1900000000 02:00:00:00:00:99 10.20.0.200 guest 01:02:00:00:00:00:99
duid 00:01:00:01:2c:aa:bb:cc:02:00:00:00:00:01
1900000000 12346 fd00::1:1 * 00:01:00:01:bb
`
	if got := n.passing(text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
