// Package ipam assigns addresses from declared subnets. A machine declares an
// address, or the pool chooses one, which the machine keeps for its life. The
// package does no I/O; the caller stores its State.
package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hostler/internal/fault"
)

// Quarantine is the time between the release of an address and its next
// allocation, so that no ARP cache or lease still points to the former owner.
const Quarantine = 10 * time.Minute

// Owner identifies the owner of an address, which is one NIC of one machine.
type Owner struct {
	Machine string `json:"machine"` // the machine's uid
	NIC     string `json:"nic"`
}

// Grant is an assigned address.
type Grant struct {
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	Owner   Owner      `json:"owner"`
	// Declared means that the owner named the address; otherwise the pool chose
	// it.
	Declared bool `json:"declared,omitempty"`
	// Released is the time when the owner gave the address back; zero while the
	// owner has it.
	Released time.Time `json:"released,omitzero"`
}

// State holds all grants, for the caller to store.
type State struct {
	Grants []Grant `json:"grants"`
}

// Network is a network with its subnets.
type Network struct {
	Name string
	// Addresses are the host's own addresses, with the prefix lengths of their
	// subnets.
	Addresses []netip.Prefix
	// Reserved ranges are never chosen, e.g. a DHCP range or an external
	// gateway.
	Reserved []Range
}

// Range is a span of addresses, inclusive at both ends.
type Range struct{ First, Last netip.Addr }

// Pool assigns addresses. It is not safe for concurrent use.
type Pool struct {
	networks map[string]Network
	taken    map[place]*Grant
	owned    map[holding]netip.Addr
	next     map[placed]netip.Addr // where to resume the search
	holds    map[Owner]bool        // see Hold
}

type place struct {
	network string
	address netip.Addr
}

type placed struct {
	network string
	subnet  netip.Prefix
}

type holding struct {
	network string
	owner   Owner
	six     bool
}

// NewPool returns a Pool that continues from the state.
func NewPool(networks []Network, state State) *Pool {
	p := &Pool{networks: map[string]Network{}, taken: map[place]*Grant{}, owned: map[holding]netip.Addr{}, next: map[placed]netip.Addr{}, holds: map[Owner]bool{}}
	for _, n := range networks {
		p.networks[n.Name] = n
	}
	for _, g := range state.Grants {
		p.put(g)
	}
	return p
}

// State returns all grants, sorted by network and address.
func (p *Pool) State() State {
	var s State
	for _, g := range p.taken {
		s.Grants = append(s.Grants, *g)
	}
	slices.SortFunc(s.Grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Address.Compare(b.Address))
	})
	return s
}

func (p *Pool) put(g Grant) {
	at := place{g.Network, g.Address}
	if old := p.taken[at]; old != nil {
		if h := (holding{old.Network, old.Owner, old.Address.Is6()}); p.owned[h] == old.Address {
			delete(p.owned, h)
		}
	}
	p.taken[at] = &g
	h := holding{g.Network, g.Owner, g.Address.Is6()}
	// A current address of the owner takes precedence over a released address.
	if held, ok := p.owned[h]; !ok || g.Released.IsZero() || !p.taken[place{g.Network, held}].Released.IsZero() {
		p.owned[h] = g.Address
	}
}

// Declare assigns an address that the owner names, and releases the owner's
// previous address of the same family on that network. It is idempotent. It
// refuses an address outside the subnets, an address of the host, and an
// address of another owner. Declare ignores the quarantine, because the
// declaration asks for this very address.
func (p *Pool) Declare(network string, address netip.Addr, o Owner, now time.Time) error {
	n, ok := p.networks[network]
	if !ok {
		return noNetwork(network)
	}
	subnet, ok := n.subnet(address)
	switch {
	case !ok:
		return fault.New(fault.Invalid, "cannot give %s: it is in none of the subnets of the network %s", address, network)
	case !usable(subnet, address):
		return fault.New(fault.Invalid, "cannot give %s: it is the first or last address of %s", address, subnet)
	case n.host(address):
		return fault.New(fault.Conflict, "cannot give %s: it is the host's address on the network %s", address, network)
	}
	if g := p.taken[place{network, address}]; g != nil && g.Owner != o && (g.Released.IsZero() || p.holds[g.Owner]) {
		return fault.New(fault.Conflict, "cannot give %s: the machine %s has it", address, g.Owner.Machine)
	}
	if had, ok := p.owned[holding{network, o, address.Is6()}]; ok && had != address {
		p.release(p.taken[place{network, had}], now)
	}
	p.put(Grant{Network: network, Address: address, Owner: o, Declared: true})
	return nil
}

// Allocate chooses an address for the owner, an IPv6 address if six is set. An
// owner that has an address, or still has a released address, gets the same
// address again. now decides which released addresses have passed their
// quarantine. If the network has no free address, the error names its subnets.
func (p *Pool) Allocate(network string, six bool, o Owner, now time.Time) (netip.Addr, error) {
	n, ok := p.networks[network]
	if !ok {
		return netip.Addr{}, noNetwork(network)
	}
	if had, ok := p.owned[holding{network, o, six}]; ok {
		// Reuse the address only while the network still contains it.
		if subnet, in := n.subnet(had); in && usable(subnet, had) && !n.host(had) {
			p.put(Grant{Network: network, Address: had, Owner: o})
			return had, nil
		}
		p.release(p.taken[place{network, had}], now)
	}
	var full []string
	for _, subnet := range n.subnets(six) {
		if a, ok := p.free(n, subnet, now); ok {
			p.put(Grant{Network: network, Address: a, Owner: o})
			return a, nil
		}
		full = append(full, subnet.String())
	}
	if len(full) == 0 {
		return netip.Addr{}, fault.New(fault.Invalid, "cannot choose an address: the network %s has no %s subnet", network, family(six))
	}
	return netip.Addr{}, fault.New(fault.NeedsOperator, "cannot choose an address: the subnet %s of the network %s is used up", strings.Join(full, ", "), network)
}

// Hold keeps the released addresses of an owner from others, because its guest still
// uses them. It begins their quarantine again in time.
func (p *Pool) Hold(o Owner, now time.Time) {
	p.holds[o] = true
	for _, g := range p.taken {
		if g.Owner == o && !g.Released.IsZero() && now.Sub(g.Released) >= Quarantine/2 {
			g.Released = now
		}
	}
}

// Retain releases all addresses whose owners are not in the set.
func (p *Pool) Retain(owners map[Owner]bool, now time.Time) {
	for _, g := range p.taken {
		if !owners[g.Owner] {
			p.release(g, now)
		}
	}
}

// Prune removes grants whose quarantine is over.
func (p *Pool) Prune(now time.Time) {
	for at, g := range p.taken {
		if !g.Released.IsZero() && rested(g, now) {
			delete(p.taken, at)
			if h := (holding{g.Network, g.Owner, g.Address.Is6()}); p.owned[h] == g.Address {
				delete(p.owned, h)
			}
		}
	}
}

func (p *Pool) release(g *Grant, now time.Time) {
	if g.Released.IsZero() {
		g.Released, g.Declared = now, false
	}
}

// rested reports whether the grant's quarantine is over. If the clock is set
// back, the quarantine takes longer.
func rested(g *Grant, now time.Time) bool { return now.Sub(g.Released) >= Quarantine }

// free returns an address of the subnet that the pool may choose, or false. The
// search starts after the last chosen address and goes around the subnet once.
func (p *Pool) free(n Network, subnet netip.Prefix, now time.Time) (netip.Addr, bool) {
	at := placed{n.Name, subnet}
	start := p.next[at]
	if !start.IsValid() {
		start = subnet.Addr()
	}
	wrapped := false
	for a := start; ; {
		if !subnet.Contains(a) {
			if wrapped {
				return netip.Addr{}, false
			}
			wrapped, a = true, subnet.Addr()
		}
		if wrapped && a.Compare(start) >= 0 {
			return netip.Addr{}, false
		}
		if end, reserved := n.reserved(a); reserved {
			a = end.Next()
			continue
		}
		g := p.taken[place{n.Name, a}]
		if usable(subnet, a) && !n.host(a) && (g == nil || !g.Released.IsZero() && rested(g, now)) {
			p.next[at] = a.Next()
			return a, true
		}
		a = a.Next()
	}
}

func noNetwork(name string) error {
	return fault.New(fault.NotReady, "cannot give an address: there is no network %s", name)
}

func family(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}
