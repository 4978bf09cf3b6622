package hostnet

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// Plan returns the steps from the observed to the wanted state, and the
// problems that prevent parts of the wanted state. It is pure. It returns no
// steps if the states agree. The steps for NICs that no bridge wants any more
// come first and the steps for unwanted bridges last, so that addresses are
// always added before they are deleted.
func Plan(w Wanted, o Observed) ([]Step, []Problem) {
	p := &planner{w: w, o: o.clone()}
	for _, nic := range slices.Sorted(maps.Keys(p.allNICSettings())) {
		p.giveBack(nic)
	}
	bridges := slices.Clone(w.Bridges)
	slices.SortStableFunc(bridges, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	for i, b := range bridges {
		if i > 0 && bridges[i-1].Name == b.Name {
			p.problem(b, fault.New(fault.Invalid, "cannot make bridge %s: two networks declare it", b.Name))
			continue
		}
		p.bridge(b)
	}
	for _, l := range slices.Clone(p.o.Links) {
		if p.ours(l) && !slices.ContainsFunc(w.Bridges, func(b Bridge) bool { return b.Name == l.Name }) {
			stamp := cmp.Or(l.Alias, Stamp(w.Namespace, "half-made"))
			_, uid, _ := ParseStamp(stamp)
			p.do(Step{Op: RemoveBridge, UID: uid, Link: l.Name, Stamp: stamp, Cuts: p.o.Ports(l.Name)})
		}
	}
	return p.steps, p.problems
}

// planner keeps a model of the host that each planned step changes, so that
// every decision sees the state in which its step will run.
type planner struct {
	w        Wanted
	o        Observed
	steps    []Step
	problems []Problem
}

func (p *planner) do(s Step) {
	p.steps = append(p.steps, s)
	p.o.change(s)
}

func (p *planner) problem(b Bridge, err error) {
	p.problems = append(p.problems, Problem{UID: b.UID, Err: err})
}

// ours reports whether the link is a bridge of our namespace, stamped or half
// made.
func (p *planner) ours(l Link) bool { return Ours(p.w.Namespace, l) }

// Ours reports whether a link is a bridge of the namespace, stamped or half made.
func Ours(namespace string, l Link) bool {
	if l.Kind != "bridge" {
		return false
	}
	if l.Alias == "" {
		return l.Group == halfMadeGroup(namespace)
	}
	of, _, ok := ParseStamp(l.Alias)
	return ok && of == namespace
}

func (p *planner) oursNamed(name string) bool {
	l, ok := p.o.Link(name)
	return ok && p.ours(l)
}

func (p *planner) bridge(b Bridge) {
	l, exists := p.o.Link(b.Name)
	if err := p.checkBridge(b, l, exists); err != nil {
		p.problem(b, err)
		return
	}
	ports := p.ports(b)
	for i := range ports {
		// The kernel deletes the routes and IPv6 addresses of a bridge that goes down.
		ports[i].lost = !exists || !l.Up || p.wasDown(l, ports[i])
	}
	guarded := len(ports) > 0
	stamp := Stamp(p.w.Namespace, b.UID)
	mac, mtu := bridgeMAC(stamp), b.MTU
	if len(ports) > 0 {
		if ports[0].had.MAC != "" {
			mac = ports[0].had.MAC
		}
		if mtu == 0 {
			mtu = ports[0].had.MTU
		}
	}
	step := func(s Step) {
		s.UID, s.Link = b.UID, b.Name
		s.Guarded = s.Guarded || guarded && exists
		p.do(s)
	}
	switch {
	case !exists:
		step(Step{Op: MakeBridge, Stamp: stamp, MAC: mac, MTU: mtu})
	case l.Alias != stamp:
		step(Step{Op: StampBridge, Stamp: stamp})
	}
	l, _ = p.o.Link(b.Name)
	// Without STP the forward delay has no effect. NetworkManager sets it.
	if l.STP {
		step(Step{Op: TuneBridge})
	}
	if l.MAC != mac {
		step(Step{Op: SetMAC, MAC: mac})
	}
	if mtu != 0 && l.MTU != mtu {
		step(Step{Op: SetMTU, MTU: mtu})
	}
	p.ipv6(b, ports)
	if !l.Up {
		step(Step{Op: SetUp})
	}
	wanted := p.addresses(b, ports)
	for _, a := range wanted {
		p.addAddress(b.UID, b.Name, a, guarded)
	}
	p.connect(b, wanted, guarded)
	for _, port := range ports {
		p.enslave(b, port)
	}
	// A bridge lowers its MTU to the smallest MTU of its ports. Set the MTU
	// again, after which the bridge keeps it.
	for _, port := range ports {
		if now, _ := p.o.Link(b.Name); mtu != 0 && now.MTU != mtu {
			step(Step{Op: SetMTU, MTU: mtu, Guarded: true})
		}
		p.move(b.UID, port, b.Name)
	}
	for _, guest := range b.Guests {
		p.rejoin(b, guest)
		if now, _ := p.o.Link(b.Name); mtu != 0 && now.MTU != mtu {
			step(Step{Op: SetMTU, MTU: mtu})
		}
	}
	p.dropExtra(b, ports, wanted)
	// The strict filter drops guests' packets with spoofed source addresses.
	value := uint32(strict)
	if len(ports) > 0 {
		value = ports[0].had.ReversePath
	}
	p.reversePath(b.UID, b.Name, value, guarded)
}

// checkBridge returns the reason why the bridge cannot be made or changed, or
// nil. l is the link with the bridge's name, if exists is true.
func (p *planner) checkBridge(b Bridge, l Link, exists bool) error {
	if b.Name == "" || len(b.Name) > maxName || strings.ContainsAny(b.Name, "/ \t\n:") || b.Name == "." || b.Name == ".." {
		return fault.New(fault.Invalid, "cannot make bridge %q: the name of a network device has 1 to %d characters, no space, slash or colon", b.Name, maxName)
	}
	if exists && !p.ours(l) {
		what := "a bridge that is not hostler's"
		if l.Kind != "bridge" {
			what = "no bridge"
		} else if namespace, _, ok := ParseStamp(l.Alias); ok {
			what = "a bridge of the hostler namespace " + namespace
		}
		return fault.New(fault.Conflict, "cannot make bridge %s: %s is %s", b.Name, b.Name, what)
	}
	for _, prefix := range b.Addresses {
		for _, a := range p.o.Addresses {
			if a.Prefix.Addr() == prefix.Addr() && a.Link != b.Name && !slices.Contains(b.Ports, a.Link) && !p.oursNamed(a.Link) {
				return fault.New(fault.Conflict, "cannot make bridge %s: the address %s is on %s", b.Name, prefix.Addr(), a.Link)
			}
		}
	}
	return nil
}

// addresses returns the addresses that the bridge must bear: the declared
// addresses, and those addresses of the ports that must move to the bridge.
func (p *planner) addresses(b Bridge, ports []port) []Address {
	var all []Address
	for _, prefix := range b.Addresses {
		all = append(all, Address{Prefix: prefix, Broadcast: broadcast(prefix)})
	}
	for _, port := range ports {
		for _, a := range port.had.Addresses {
			if (port.lost || len(p.bearers(port, a, b.Name)) > 0) && !slices.ContainsFunc(all, a.same) {
				all = append(all, a)
			}
		}
	}
	return all
}

// dropExtra deletes permanent addresses of the bridge that are not declared.
// Expiring addresses belong to a DHCP client or to the kernel. A bridge with
// host NICs is the host's own connection, so other programs and the NICs'
// managers add addresses to it. There dropExtra deletes only formerly declared
// addresses.
func (p *planner) dropExtra(b Bridge, ports []port, wanted []Address) {
	isExtra := func(a Address) bool {
		if !a.Permanent() || a.Prefix.Addr().IsLinkLocalUnicast() || slices.ContainsFunc(wanted, a.same) || p.isOnlyBearer(a) {
			return false
		}
		return len(b.Ports) == 0 || slices.Contains(b.Former, a.Prefix) && !isOfPort(a, ports)
	}
	extra := filter(p.o.AddressesOf(b.Name), isExtra)
	for _, a := range extra {
		p.deleteAddress(Step{UID: b.UID, Link: b.Name, Address: &a, Guarded: len(ports) > 0})
	}
	// Deleting the first address of a network may make the kernel drop the
	// network's other addresses.
	for _, a := range p.o.AddressesOf(b.Name) {
		if a.Prefix.Addr().Is4() && slices.ContainsFunc(extra, func(gone Address) bool { return gone.Prefix.Masked() == a.Prefix.Masked() }) {
			a.Link = ""
			p.do(Step{Op: AddAddress, UID: b.UID, Link: b.Name, Address: &a, Guarded: len(ports) > 0})
		}
	}
}

func isOfPort(a Address, ports []port) bool {
	return slices.ContainsFunc(ports, func(port port) bool { return slices.ContainsFunc(port.had.Addresses, a.same) })
}

// isOnlyBearer reports whether the address belonged to a NIC and no link other
// than a.Link bears it. The NIC cannot get its address back now.
func (p *planner) isOnlyBearer(a Address) bool {
	for _, had := range p.w.NICSettings {
		if slices.ContainsFunc(had.Addresses, a.same) {
			return !slices.ContainsFunc(p.o.Addresses, func(other Address) bool { return other.Link != a.Link && other.same(a) })
		}
	}
	return false
}

func (p *planner) addAddress(uid, link string, a Address, guarded bool) {
	if !slices.ContainsFunc(p.o.AddressesOf(link), a.same) {
		p.do(Step{Op: AddAddress, UID: uid, Link: link, Address: &a, Guarded: guarded})
	}
}

func (p *planner) deleteAddress(s Step) {
	a := *s.Address
	if slices.ContainsFunc(p.o.AddressesOf(s.Link), a.same) {
		a.Link = ""
		s.Op, s.Address = DeleteAddress, &a
		p.do(s)
	}
}

// declares reports whether the declaration of the named bridge lists the
// address.
func (w Wanted) declares(bridge string, address netip.Prefix) bool {
	return slices.ContainsFunc(w.Bridges, func(b Bridge) bool {
		return b.Name == bridge && slices.Contains(b.Addresses, address)
	})
}
