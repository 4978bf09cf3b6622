package bridgepolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// guestNIC is a network device of a guest.
type guestNIC struct {
	Name   string
	Bridge string
	MTU    int
	Space  string
	// DHCP means that the address comes from the network, not from a record.
	DHCP bool
}

// planNICs returns one NIC per host bridge for the spaces that the guest
// needs, named eth0, eth1 and so on in natural order of the bridges. Guests of
// a manually enrolled host (byHand) use DHCP, because no record assigns
// addresses there.
func planNICs(need need, devices []device, byHand bool) ([]guestNIC, error) {
	spaces, err := wanted(need, devices)
	if err != nil {
		return nil, err
	}
	var nics []guestNIC
	var without []string
	for _, space := range spaces {
		found := false
		for _, d := range devices {
			if !usable(need.Method, d) || !in(d, space) {
				continue
			}
			found = true
			if !slices.ContainsFunc(nics, func(n guestNIC) bool { return n.Bridge == d.Name }) {
				nics = append(nics, guestNIC{Bridge: d.Name, MTU: guestMTU(d, devices), Space: space, DHCP: byHand})
			}
		}
		if !found && need.Method == methodLocal && space == defaultSpace && need.LocalBridge != "" {
			found = true
			nics = append(nics, guestNIC{Bridge: need.LocalBridge, Space: space, DHCP: true})
		}
		if !found {
			without = append(without, spaceName(space))
		}
	}
	if len(without) > 0 {
		return nil, fault.New(fault.NotReady, "cannot give the guest a network: the host has no bridge for %s", strings.Join(without, ", "))
	}
	slices.SortStableFunc(nics, func(a, b guestNIC) int { return compare(a.Bridge, b.Bridge) })
	for i := range nics {
		nics[i].Name = fmt.Sprintf("eth%d", i)
	}
	return nics, nil
}

// guestMTU returns the bridge's MTU. For a fan bridge it returns the overlay's
// MTU, which leaves room for the overlay's header.
func guestMTU(bridge device, devices []device) int {
	if strings.HasPrefix(bridge.Name, "fan-") {
		for _, d := range devices {
			if d.Kind == kindVXLAN && d.Parent == bridge.Name && d.MTU > 0 {
				return d.MTU
			}
		}
	}
	return bridge.MTU
}

// compare orders names naturally, e.g. eth2 before eth10.
func compare(a, b string) int {
	whole := cmp.Compare(a, b)
	for a != "" && b != "" {
		digitsA, digitsB := leadingDigits(a), leadingDigits(b)
		if digitsA == "" || digitsB == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		a, b = a[len(digitsA):], b[len(digitsB):]
		digitsA, digitsB = strings.TrimLeft(digitsA, "0"), strings.TrimLeft(digitsB, "0")
		// Without leading zeros, the longer number is greater.
		if c := cmp.Or(cmp.Compare(len(digitsA), len(digitsB)), cmp.Compare(digitsA, digitsB)); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

func leadingDigits(s string) string {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i]
}

func naturally(devices []device) []device {
	sorted := slices.Clone(devices)
	slices.SortStableFunc(sorted, func(a, b device) int { return compare(a.Name, b.Name) })
	return sorted
}
