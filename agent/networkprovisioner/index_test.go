package networkprovisioner

import (
	"fmt"
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// The work of a plan grows with the sum of networks and guests, not with the
// product.
func TestANetworksGuestsAreFoundWithoutALookAtTheOthers(t *testing.T) {
	const n = 200
	var objects []state.Object
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		network := state.Object{ID: state.ID{Kind: spec.KindNetwork, Name: name}, UID: name, Life: state.Alive}
		network.Spec = spec.Encode(spec.NetworkRecord{Network: plain("b"+name, "10.0.0.1/24")})
		network.Status = spec.Encode(spec.NetworkStatus{Guests: map[string]spec.GuestAddress{"left" + name + "/eth0": {}, "absent/eth0": {}}})
		on := state.Object{ID: state.ID{Kind: spec.KindMachine, Name: "on" + name}, Life: state.Alive}
		on.Spec = spec.Encode(spec.MachineRecord{Machine: spec.Machine{Networks: map[string]spec.NIC{"eth0": {Network: name}, "eth1": {Network: name}}}})
		left := state.Object{ID: state.ID{Kind: spec.KindMachine, Name: "left" + name}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{})}
		objects = append(objects, network, on, left)
	}
	d, err := Decode(objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range d.Networks {
		var names []string
		for _, g := range d.guestsOf(network) {
			names = append(names, g.Name)
		}
		if want := []string{"on" + network.Name, "left" + network.Name}; !slices.Equal(names, want) {
			t.Fatalf("on %s are %v, want %v", network.Name, names, want)
		}
		if rivals := d.networksOn(network.Record.Network.Bridge); len(rivals) != 1 || rivals[0].Name != network.Name {
			t.Fatalf("%d networks are on the bridge of %s", len(rivals), network.Name)
		}
		if wants := d.wantsOn(network); len(wants) != 2 {
			t.Fatalf("%s: wanted %v", network.Name, wants)
		}
	}
}
