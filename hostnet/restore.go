package hostnet

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// Restore returns the steps that bring the touched links back to an earlier
// state. before is this state, and now is the present state. Links that other
// programs created meanwhile stay, and untouched links lose nothing. A new
// bridge of the namespace is removed unless guests have joined it. Restore is
// pure and works from any intermediate state; callers repeat it until it
// returns no steps.
func Restore(namespace string, before, now Observed, touched []string) []Step {
	r := restorer{planner: planner{w: Wanted{Namespace: namespace}, o: now.clone()}, before: before, touched: touched}
	for _, was := range before.Links {
		r.link(was)
	}
	for _, was := range before.Links {
		r.bear(was.Name)
	}
	for _, name := range touched {
		r.dropRoutes(name)
	}
	for _, was := range before.Links {
		r.master(was)
	}
	for _, name := range touched {
		r.dropAddresses(name)
	}
	for _, name := range touched {
		r.dropBridge(name)
	}
	for _, was := range before.Links {
		if is, ok := r.o.Link(was.Name); ok && r.touches(was.Name) {
			if is.MTU != was.MTU { // a bridge adapts its MTU to its ports
				r.do(Step{Op: SetMTU, Link: was.Name, MTU: was.MTU, Guarded: true})
			}
			r.reversePath("", was.Name, was.ReversePath, true)
		}
	}
	return r.steps
}

type restorer struct {
	planner
	before  Observed
	touched []string
}

func (r *restorer) touches(link string) bool { return slices.Contains(r.touched, link) }

// link recreates a missing bridge of ours, and restores the link's MAC address,
// MTU and up state.
func (r *restorer) link(was Link) {
	is, there := r.o.Link(was.Name)
	if !there {
		if !Ours(r.w.Namespace, was) || was.Alias == "" {
			return // a device that was unplugged
		}
		r.do(Step{Op: MakeBridge, Link: was.Name, Stamp: was.Alias, MAC: was.MAC, MTU: was.MTU, Guarded: true})
		is, _ = r.o.Link(was.Name)
	}
	if !r.touches(was.Name) {
		return
	}
	if is.MAC != was.MAC && was.MAC != "" {
		r.do(Step{Op: SetMAC, Link: was.Name, MAC: was.MAC, Guarded: true})
	}
	if is.MTU != was.MTU {
		r.do(Step{Op: SetMTU, Link: was.Name, MTU: was.MTU, Guarded: true})
	}
	if was.Up && !is.Up {
		r.do(Step{Op: SetUp, Link: was.Name, Guarded: true})
	}
}

// bear adds the addresses, neighbours and routes that a link had before.
func (r *restorer) bear(link string) {
	if _, there := r.o.Link(link); !there {
		return
	}
	for _, a := range r.before.AddressesOf(link) {
		a.Link = ""
		r.addAddress("", link, a, true)
	}
	had := NICSettings{Neighbours: filter(r.before.Neighbours, func(n Neighbour) bool { return n.Link == link })}
	for _, route := range r.before.RoutesOf(link) {
		if route.Complex == "" {
			route.Link = ""
			had.Routes = append(had.Routes, route)
		}
	}
	r.addRoutes(link, had)
}

// addRoutes adds the neighbours and routes in had that the link lacks. Directly
// connected routes come first, because the gateways of the other routes are in
// such networks.
func (r *restorer) addRoutes(link string, had NICSettings) {
	for _, n := range had.Neighbours {
		n.Link = link
		if !slices.Contains(r.o.Neighbours, n) {
			r.do(Step{Op: AddNeighbour, Link: link, Neighbour: &n, Guarded: true})
		}
	}
	for _, straight := range []bool{true, false} {
		for _, route := range had.Routes {
			if route.Gateway.IsValid() != straight && !slices.ContainsFunc(r.o.RoutesOf(link), route.same) {
				r.do(Step{Op: AddRoute, Link: link, Route: &route, Guarded: true})
			}
		}
	}
}

// extra reports whether a link has gained the address. An expiring address that
// was on no link before belongs to another program, e.g. a DHCP client, and is
// not extra.
func (r *restorer) extra(a Address) bool {
	had := func(have Address) bool { return have.same(a) }
	if slices.ContainsFunc(r.before.AddressesOf(a.Link), had) {
		return false
	}
	if was, _ := r.before.Link(a.Link); a.Prefix.Addr().Is6() && a.Prefix.Addr().IsLinkLocalUnicast() {
		return was.Master != "" // the kernel adds the link-local address of a link without a master
	}
	return a.Permanent() || slices.ContainsFunc(r.before.Addresses, had)
}

func (r *restorer) dropRoutes(link string) {
	for _, route := range r.o.RoutesOf(link) {
		if slices.ContainsFunc(r.before.RoutesOf(link), route.same) || route.Complex != "" || route.Protocol == unix.RTPROT_RA {
			continue
		}
		// The kernel deletes its own routes with their addresses. Delete early only
		// the kernel's routes of extra addresses, because these compete with the
		// route over the link that gets the address back.
		if route.Protocol == protoKernel && !slices.ContainsFunc(r.o.AddressesOf(link), func(a Address) bool {
			own, ok := connected(a)
			return ok && r.extra(a) && route.same(own)
		}) {
			continue
		}
		route.Link = ""
		r.do(Step{Op: DeleteRoute, Link: link, Route: &route, Guarded: true})
	}
}

// master takes a link from under our bridge or puts it under our bridge, as it
// was before.
func (r *restorer) master(was Link) {
	is, there := r.o.Link(was.Name)
	if !there || !r.touches(was.Name) || is.Master == was.Master {
		return
	}
	if is.Master != "" {
		if !r.oursNamed(is.Master) {
			return // another program took it meanwhile
		}
		r.do(Step{Op: LearnNeighbours, Link: was.Name, Bridge: is.Master, Guarded: true})
		r.do(Step{Op: Release, Link: was.Name, Bridge: is.Master, Guarded: true})
	}
	if was.Master != "" && r.oursNamed(was.Master) {
		r.do(Step{Op: LearnNeighbours, Link: was.Master, Bridge: was.Name, Guarded: true})
		r.do(Step{Op: Enslave, Link: was.Name, Bridge: was.Master, Guarded: true})
	}
}

func (r *restorer) dropAddresses(link string) {
	for _, a := range slices.Clone(r.o.AddressesOf(link)) {
		if !r.extra(a) {
			continue
		}
		heir := ""
		for _, was := range r.before.Addresses {
			if was.same(a) {
				heir = was.Link
			}
		}
		r.deleteAddress(Step{Link: link, Address: &a, Heir: heir, Guarded: true})
	}
}

// dropBridge removes a bridge that the change created, unless the bridge has
// ports.
func (r *restorer) dropBridge(name string) {
	l, there := r.o.Link(name)
	if _, was := r.before.Link(name); !there || was || !r.ours(l) || len(r.o.Ports(name)) > 0 {
		return
	}
	stamp := cmp.Or(l.Alias, Stamp(r.w.Namespace, "half-made"))
	r.do(Step{Op: RemoveBridge, Link: name, Stamp: stamp, Guarded: true})
}
