// Package ipam gives addresses out of declared subnets: those that machines
// declare and those it chooses itself, which stay a machine's for its life. It
// does no I/O; its State is the caller's to keep.
package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hostler/internal/fault"
)

// Quarantine is how long a released address rests before it is chosen again,
// so that nobody's cache or lease still leads to its former holder.
const Quarantine = 10 * time.Minute

// Owner is who has an address: one NIC of one machine.
type Owner struct {
	Machine string `json:"machine"` // the machine's uid
	NIC     string `json:"nic"`
}

// Grant is an address given out.
type Grant struct {
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	Owner   Owner      `json:"owner"`
	// Declared addresses were named by the owner, others chosen here.
	Declared bool `json:"declared,omitempty"`
	// Released is when the owner gave the address back; zero while it has it.
	Released time.Time `json:"released,omitzero"`
}

// State is what is given out, for the caller to keep.
type State struct {
	Grants []Grant `json:"grants"`
}

// Network is a network with its subnets.
type Network struct {
	Name string
	// Addresses are the host's own, with the length of their subnets.
	Addresses []netip.Prefix
	// Reserved are never chosen: a DHCP range, a gateway elsewhere.
	Reserved []Range
}

// Range is a span of addresses, both ends included.
type Range struct{ First, Last netip.Addr }

// Pool gives out addresses. It is not for several goroutines at once.
type Pool struct {
	networks map[string]Network
	taken    map[place]*Grant
	owned    map[holding]netip.Addr
	next     map[placed]netip.Addr // where to go on looking
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

// NewPool returns a Pool that goes on from the state.
func NewPool(networks []Network, state State) *Pool {
	p := &Pool{networks: map[string]Network{}, taken: map[place]*Grant{}, owned: map[holding]netip.Addr{}, next: map[placed]netip.Addr{}}
	for _, n := range networks {
		p.networks[n.Name] = n
	}
	for _, g := range state.Grants {
		p.put(g)
	}
	return p
}

// State returns what is given out, in the order of network and address.
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
	// What the owner has wins over what it once had.
	if held, ok := p.owned[h]; !ok || g.Released.IsZero() || !p.taken[place{g.Network, held}].Released.IsZero() {
		p.owned[h] = g.Address
	}
}

// Declare gives the owner an address that it names, and takes back the one of
// the same family that it had on that network. It is idempotent; an address
// outside the subnets, the host's own or another's is refused. It does not
// wait for the quarantine: somebody asked for just this address.
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
		return fault.New(fault.Conflict, "cannot give %s: it is the host's own on the network %s", address, network)
	}
	if g := p.taken[place{network, address}]; g != nil && g.Released.IsZero() && g.Owner != o {
		return fault.New(fault.Conflict, "cannot give %s: the machine %s has it", address, g.Owner.Machine)
	}
	if had, ok := p.owned[holding{network, o, address.Is6()}]; ok && had != address {
		p.release(p.taken[place{network, had}], now)
	}
	p.put(Grant{Network: network, Address: address, Owner: o, Declared: true})
	return nil
}

// Allocate chooses an address for the owner, of IPv6 when six is set, or
// returns the one that it has or last had. now decides which released ones
// have rested long enough. A used-up network is an error that names its
// subnets.
func (p *Pool) Allocate(network string, six bool, o Owner, now time.Time) (netip.Addr, error) {
	n, ok := p.networks[network]
	if !ok {
		return netip.Addr{}, noNetwork(network)
	}
	if had, ok := p.owned[holding{network, o, six}]; ok {
		// Kept only where the network still has it.
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

// Retain releases what no longer has an owner in the set.
func (p *Pool) Retain(owners map[Owner]bool, now time.Time) {
	for _, g := range p.taken {
		if !owners[g.Owner] {
			p.release(g, now)
		}
	}
}

// Prune forgets what was released longer than the quarantine ago.
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

// rested says that the quarantine is over. A clock set back only lengthens it.
func rested(g *Grant, now time.Time) bool { return now.Sub(g.Released) >= Quarantine }

// free looks once around the subnet for an address that may be chosen.
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
