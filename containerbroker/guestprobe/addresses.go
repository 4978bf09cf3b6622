package guestprobe

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hostler/containerbroker"
)

// ExpectsAddress reports whether a machine is ready only once it has an
// address. That is always so for a machine with NICs.
func ExpectsAddress(m containerbroker.Machine) bool {
	return m.ExpectAddress || len(m.NICs) > 0
}

// awaited returns a list of addresses for every interface with known addresses,
// in the notation of the guest's /proc/net. One address per interface is
// enough, because some guests cannot have IPv6.
func awaited(m containerbroker.Machine) []string {
	var lists []string
	for _, n := range m.NICs {
		v4, v6 := ByFamily(n.Addresses)
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

// Lacking describes the first interface that has none of its declared addresses
// among have, the addresses in the guest. It returns "" if there is no such
// interface.
func Lacking(m containerbroker.Machine, have []string) string {
	for _, n := range m.NICs {
		v4, v6 := ByFamily(n.Addresses)
		all := append(v4, v6...)
		if len(all) > 0 && !slices.ContainsFunc(all, func(a string) bool { return slices.Contains(have, a) }) {
			return fmt.Sprintf("%s has not got address %s", n.Name, strings.Join(all, " or "))
		}
	}
	return ""
}

// ByFamily returns addresses without their prefix lengths, each once.
func ByFamily(texts []string) (v4, v6 []string) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue // SettingsOf refuses these earlier
		}
		family := &v4
		if prefix.Addr().Is6() {
			family = &v6
		}
		if address := prefix.Addr().String(); !slices.Contains(*family, address) {
			*family = append(*family, address)
		}
	}
	return v4, v6
}
