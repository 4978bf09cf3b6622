package lxd

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hostler/containerbroker"
)

// expectsAddress says that a machine is not ready without an address. One on
// networks of its own is there to be reached.
func expectsAddress(m containerbroker.Machine) bool {
	return m.ExpectAddress || len(m.NICs) > 0
}

// awaited returns, for every interface whose addresses are known, these
// addresses as /proc/net of the guest writes them. One of each interface is
// enough: not every guest can be given IPv6.
func awaited(m containerbroker.Machine) []string {
	var lists []string
	for _, n := range m.NICs {
		v4, v6 := addressesByFamily(n.Addresses)
		for i, text := range v6 {
			address := netip.MustParseAddr(text).As16()
			v6[i] = hex.EncodeToString(address[:])
		}
		if all := append(v4, v6...); len(all) > 0 {
			lists = append(lists, " "+strings.Join(all, " ")+" ")
		}
	}
	return lists
}

// lacking names the first interface of which no address is there.
func lacking(m containerbroker.Machine, have []string) string {
	for _, n := range m.NICs {
		v4, v6 := addressesByFamily(n.Addresses)
		all := append(v4, v6...)
		if len(all) > 0 && !slices.ContainsFunc(all, func(a string) bool { return slices.Contains(have, a) }) {
			return fmt.Sprintf("%s has not got address %s", n.Name, strings.Join(all, " or "))
		}
	}
	return ""
}
