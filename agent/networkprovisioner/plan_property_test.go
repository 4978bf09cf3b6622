package networkprovisioner

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/firewall"
)

// drawHost draws the host before any network is declared: NICs, bridges of
// other programs, bridges of ours without a record, boot files and sockets.
func drawHost(t *rapid.T) Observed {
	var o Observed
	add := func(l hostnet.Link, addresses ...string) {
		l.Up, l.MTU = true, 1500
		o.Host.Links = append(o.Host.Links, l)
		for _, text := range addresses {
			p := netip.MustParsePrefix(text)
			o.Host.Addresses = append(o.Host.Addresses, hostnet.Address{Link: l.Name, Prefix: p})
			o.Host.Routes = append(o.Host.Routes, hostnet.Route{Link: l.Name, Destination: p.Masked(), Source: p.Addr(), Table: 254, Protocol: 2})
		}
	}
	maybe := rapid.Bool()
	add(hostnet.Link{Name: "eth0", MAC: "52:54:00:00:00:01"}, "192.0.2.10/24")
	o.Host.Routes = append(o.Host.Routes, hostnet.Route{Link: "eth0", Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Table: 254})
	if maybe.Draw(t, "second NIC") {
		add(hostnet.Link{Name: "eth1", MAC: "52:54:00:00:00:02"}, "10.21.0.9/24")
	}
	if maybe.Draw(t, "foreign bridge") {
		add(hostnet.Link{Name: "docker0", Kind: "bridge"}, "172.17.0.1/16")
	}
	if maybe.Draw(t, "bridge of the name") {
		add(hostnet.Link{Name: "br-b", Kind: "bridge"})
	}
	if maybe.Draw(t, "stray") {
		add(hostnet.Link{Name: "br-stray", Kind: "bridge", Alias: hostnet.Stamp("ns", "lost")}, "10.30.0.1/24")
		if maybe.Draw(t, "guest of the stray") {
			o.Host.Links = append(o.Host.Links, hostnet.Link{Name: "veth9", Kind: "veth", Up: true, MTU: 1500, Master: "br-stray", MasterKind: "bridge"})
		}
	}
	o.Own.Persistent = rapid.SampledFrom([][]string{nil, {"br-gone"}, {"br-a", "br-gone"}}).Draw(t, "boot files")
	return o
}

// drawNetwork draws a declared network; networks share bridges and subnets now
// and then.
func drawNetwork(t *rapid.T) spec.Network {
	maybe := rapid.Bool()
	n := spec.Network{
		Bridge: rapid.SampledFrom([]string{"br-a", "br-b", "br-c", "br-d"}).Draw(t, "bridge"),
		Addresses: rapid.SampledFrom([][]string{
			nil, {"10.20.0.1/24"}, {"10.21.0.1/24"}, {"10.22.0.1/29"}, {"10.23.0.1/24", "fd00:23::1/64"}, {"fd00:24::1/64"},
		}).Draw(t, "addresses"),
		Interfaces: rapid.SampledFrom([][]string{nil, nil, nil, {"eth0"}, {"eth1"}}).Draw(t, "interfaces"),
		MTU:        rapid.SampledFrom([]int{0, 0, 1400}).Draw(t, "mtu"),
		Forwarding: maybe.Draw(t, "forwarding"), NAT: maybe.Draw(t, "nat"), ProxyARP: maybe.Draw(t, "proxy ARP"), DHCP: maybe.Draw(t, "dhcp"),
	}
	if len(n.Addresses) == 0 || len(n.Interfaces) > 0 { // see spec.Parse
		n.NAT, n.DHCP = false, false
	}
	return n
}

// drawMachine draws machine number n on some of the networks. No two interfaces
// declare the same address; the API refuses that.
func drawMachine(t *rapid.T, n int) (spec.MachineRecord, spec.MachineStatus) {
	m := spec.Machine{Type: spec.LXD, Networks: map[string]spec.NIC{}}
	for i := range rapid.IntRange(0, 2).Draw(t, "interfaces") {
		m.Networks[fmt.Sprintf("eth%d", i)] = spec.NIC{
			Network: rapid.SampledFrom([]string{"n0", "n1", "n2"}).Draw(t, "network"),
			Address: rapid.SampledFrom([]string{"", "", fmt.Sprintf("10.20.0.%d/24", 10*n+i+7), fmt.Sprintf("10.21.0.%d/24", 10*n+i+7)}).Draw(t, "address"),
		}
	}
	if rapid.Bool().Draw(t, "publishes") {
		m.Publish = []spec.Publish{{Protocol: "tcp", HostPort: rapid.SampledFrom([]int{80, 8080}).Draw(t, "port"), Port: 80}}
	}
	s := spec.MachineStatus{State: rapid.SampledFrom([]spec.MachineState{spec.MachineProvisioning, spec.MachineRunning, "pending"}).Draw(t, "state")}
	if s.State == spec.MachineRunning {
		s.Instance = &spec.InstanceInfo{}
	}
	s.UsesNICs = rapid.SampledFrom([][]string{nil, {}, spec.NICObjects(m.Networks)}).Draw(t, "used interfaces")
	return spec.MachineRecord{Machine: m}, s
}

// declareDrawn changes the declared objects at random, as apply and delete do.
func (r *rig) declareDrawn(t *rapid.T) {
	write := func(kind, name string, record, status []byte) {
		id := state.ID{Kind: kind, Name: name}
		o, err := r.store.Get(t.Context(), id)
		there := err == nil
		w := state.Write{ID: id, Revision: o.Revision, Spec: record, Status: status, Life: state.Alive}
		switch rapid.SampledFrom([]string{"declare", "declare", "leave", "delete"}).Draw(t, kind+" "+name) {
		case "leave":
			return
		case "delete":
			if !there {
				return
			}
			w = state.Write{ID: id, UID: o.UID, Revision: o.Revision, Life: state.Dying}
			if kind == spec.KindMachine {
				w = state.Write{ID: id, UID: o.UID, Revision: o.Revision, Delete: true}
			}
		case "declare":
			if there && o.Life != state.Alive {
				return
			}
		}
		if _, err := r.store.Write(t.Context(), state.Atomic, w); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		n := spec.NetworkRecord{Network: drawNetwork(t)}
		n.Network.Interfaces = slices.DeleteFunc(slices.Clone(n.Network.Interfaces), func(nic string) bool { return r.declared(t, fmt.Sprint("n", i), nic) })
		n.Allow = rapid.SampledFrom([][]string{nil, {"restart"}}).Draw(t, "allow")
		write(spec.KindNetwork, fmt.Sprint("n", i), spec.Encode(n), nil)
	}
	for i := range 3 {
		record, status := drawMachine(t, i)
		write(spec.KindMachine, fmt.Sprint("m", i), spec.Encode(record), spec.Encode(status))
	}
}

// declared reports whether another network declares the interface; the API
// refuses such a declaration.
func (r *rig) declared(t *rapid.T, name, nic string) bool {
	networks, _, err := r.store.List(t.Context(), spec.KindNetwork)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(networks, func(o state.Object) bool {
		var n spec.NetworkRecord
		return o.Name != name && o.Life == state.Alive && json.Unmarshal(o.Spec, &n) == nil && slices.Contains(n.Network.Interfaces, nic)
	})
}

// watchedPass runs a pass and fails if it changes one of its plans. It returns
// the operations of the last plan.
func (r *rig) watchedPass(t *rapid.T) []Operation {
	w := r.worker
	p := &turn{errs: map[string]error{}, links: map[string][]string{}, notes: map[string][]string{}, gone: map[string]bool{}}
	for p.round = 1; ; p.round++ {
		if err := w.look(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if w.idle {
			return nil
		}
		policy := w.policy
		policy.Now, policy.Delayed = p.now, map[string]bool{}
		for _, n := range p.d.Networks {
			policy.Delayed[n.UID] = p.errs[n.UID] != nil || w.awaitsRetry(n, p.now)
		}
		same := Make(p.d, p.o, policy)
		if !reflect.DeepEqual(same, p.p) {
			t.Fatalf("the same observation gives the plan\n%+v\nand\n%+v", p.p, same)
		}
		operations := p.p.Operations
		again, err := w.act(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if !again {
			if _, err := w.finish(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(same, p.p) {
			t.Fatalf("the plan\n%+v\nbecame\n%+v", same, p.p)
		}
		if !again {
			return operations
		}
	}
}

// After a plan is carried out, the next plan is empty, whatever is declared and
// whatever the host has; and nobody changes a plan once it is made.
func TestACarriedOutPlanLeavesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, drawHost(rt))
		r.worker.policy.Sweep = rapid.Bool().Draw(rt, "sweep")
		if rapid.Bool().Draw(rt, "earlier rules") {
			r.rules.Networks = []firewall.Network{{Owner: "lost", Bridge: "br-stray", Subnets: []netip.Prefix{netip.MustParsePrefix("10.30.0.1/24")}, Forward: true}}
		}
		for range rapid.IntRange(1, 3).Draw(rt, "declarations") {
			r.declareDrawn(rt)
			for range 3 { // a record goes one pass after its DHCP server
				r.now = r.now.Add(time.Hour)
				r.watchedPass(rt)
			}
			if left := r.watchedPass(rt); len(left) > 0 {
				rt.Fatalf("left to do: %+v\non %+v", left, slices.Sorted(maps.Keys(r.worker.last)))
			}
		}
	})
}
