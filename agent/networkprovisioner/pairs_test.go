package networkprovisioner

import (
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/hostnet"
)

// F3: a pair of devices that a killed hypervisor left is removed after a while,
// which the worker waits for. Pairs of other programs and those of running guests
// stay, however old they are.
func TestThePairOfAnAbandonedStartIsRemoved(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("lan", lan())
	r.write(state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "web"}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{
		Machine: spec.Machine{Type: spec.LXD, Networks: map[string]spec.NIC{"eth0": {Network: "lan"}}},
	})})
	r.pass()
	s, _ := r.status("lan")
	mac := s.Guests["web/eth0"].MAC
	if mac == "" {
		t.Fatalf("the guest has no entry: %+v", s.Guests)
	}
	port := containerbroker.PortOf(mac)
	pair := func(name, other string) {
		r.numbers++
		r.o.Host.Links = append(r.o.Host.Links, hostnet.Link{Name: name, Kind: "veth", Index: r.numbers, Pair: other, MTU: 1500})
	}
	names := func() (all []string) {
		for _, l := range r.o.Host.Links {
			if l.Kind == "veth" {
				all = append(all, l.Name)
			}
		}
		return all
	}
	pair(port, "veth0")
	pair("veth0", port)
	pair("hn00163e000001", "veth1") // another namespace's
	pair("vethx", "vethy")
	due := r.pass()
	if got, want := due.Sub(r.now), pairAge; got != want {
		t.Errorf("the next pass is due after %v, not %v", got, want)
	}
	if got := names(); len(got) != 4 {
		t.Errorf("a start that may go on has %v", got)
	}
	r.now = due
	r.pass()
	if got := names(); !slices.Equal(got, []string{"hn00163e000001", "vethx"}) {
		t.Errorf("left: %v", got)
	}

	// Its guest runs again, then the hypervisor is killed again.
	pair(port, "")
	if due = r.pass(); !due.IsZero() {
		t.Errorf("a pass is due at %s", due)
	}
	r.now = r.now.Add(2 * pairAge)
	r.pass()
	if got := names(); !slices.Contains(got, port) {
		t.Errorf("the running guest's end is gone: %v", got)
	}
	r.o.Host.Links[len(r.o.Host.Links)-1].Pair = "veth2"
	pair("veth2", port)
	if due = r.pass(); due.Sub(r.now) != pairAge || !slices.Contains(names(), port) {
		t.Errorf("the next pass is due after %v, there are %v", due.Sub(r.now), names())
	}
}

// An entry that only keeps an address names no device.
func TestAnEntryWithoutAMACAddressNamesNoPair(t *testing.T) {
	d, o := Desired{Networks: []Network{network("lan", lan())}}, Observed{Abandoned: []string{containerbroker.PortPrefix}}
	released := t0
	d.Networks[0].Status.Guests = map[string]spec.GuestAddress{"web/eth0#10.20.0.9": {Addresses: []string{"10.20.0.9/24"}, Released: &released}}
	if p := Make(d, o, policy()); len(p.Strays) > 0 {
		t.Errorf("removed: %v", p.Strays)
	}
}
