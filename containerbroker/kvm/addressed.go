package kvm

import (
	"maps"
	"slices"
	"strings"

	"hostler/containerbroker"
)

// A domain's definition does not record the addresses that the guest learns from
// its seed or from the DHCP server of the bridge, so the note records them.

// addressesAfter returns the addresses of the note after the changes of some
// interfaces. An interface that the note does not know gets the wanted addresses.
func addressesAfter(had, want map[string]string, changed []string) map[string]string {
	now := maps.Clone(want)
	for name, addresses := range had {
		if !slices.Contains(changed, name) {
			if now == nil {
				now = map[string]string{}
			}
			now[name] = addresses
		}
	}
	return now
}

// describeAddresses adds the addresses of interfaces to their descriptions, so
// that they are compared. If the note does not know the addresses of an interface
// that is as wanted in all else, unknown is true, and no difference is seen.
func describeAddresses(want *containerbroker.Settings, i *containerbroker.Instance) (unknown bool) {
	has := maps.Clone(i.Stored.Addresses)
	if has == nil {
		has = map[string]string{}
	}
	for name, addresses := range want.Addresses {
		if has[name] == "" && i.Stored.NICs[name] == want.NICs[name] {
			has[name], unknown = addresses, true
		}
	}
	if i.Running != nil {
		now := *i.Running
		now.NICs = withAddresses(now.NICs, has)
		i.Running = &now
	}
	want.NICs, i.Stored.NICs = withAddresses(want.NICs, want.Addresses), withAddresses(i.Stored.NICs, has)
	return unknown
}

func withAddresses(texts, addresses map[string]string) map[string]string {
	all := maps.Clone(texts)
	for name, text := range all {
		if words := strings.Fields(addresses[name]); len(words) > 0 {
			all[name] = strings.Join(append([]string{text}, words...), ", ")
		}
	}
	return all
}

// writeAddresses and readAddresses encode and decode the addresses in a domain's
// note, e.g. "eth0=192.0.2.2,2001:db8::2".
func writeAddresses(addresses map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		words = append(words, name+"="+strings.ReplaceAll(addresses[name], " ", ","))
	}
	return strings.Join(words, " ")
}

func readAddresses(text string) map[string]string {
	addresses := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		if name, all, ok := strings.Cut(word, "="); ok && all != "" {
			addresses[name] = strings.ReplaceAll(all, ",", " ")
		}
	}
	return addresses
}
