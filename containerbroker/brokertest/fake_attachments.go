package brokertest

import (
	"strings"

	"hostler/containerbroker"
)

// copyEntry copies an entry of want to have, or deletes it if want lacks it.
func copyEntry(have, want map[string]string, name string) {
	if text, ok := want[name]; ok {
		have[name] = text
	} else {
		delete(have, name)
	}
}

// addressesOf returns the addresses of a machine's interfaces, without prefix
// lengths.
func addressesOf(m containerbroker.Machine) []string {
	var all []string
	for _, n := range m.NICs {
		for _, a := range n.Addresses {
			address, _, _ := strings.Cut(a, "/")
			all = append(all, address)
		}
	}
	return all
}

func macsOf(m containerbroker.Machine) []string {
	var all []string
	for _, n := range m.NICs {
		all = append(all, strings.ToLower(n.MAC))
	}
	return all
}
