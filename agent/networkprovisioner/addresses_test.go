package networkprovisioner

import (
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// had returns an interface's addresses in a plan, or "" if it waits.
func had(p Plan, k string) string {
	if g := p.Networks[0].Guests[k]; len(g.Addresses) > 0 && g.Released == nil {
		return g.Addresses[0]
	}
	return ""
}

// A6: a chosen address is neither declared by another machine of the same
// document, whatever its name, nor observed on a guest.
func TestDeclaredAddressesComeFirst(t *testing.T) {
	seen := guest("c", on("lan", ""))
	seen.Addresses = addressesOf(spec.GuestAddress{Addresses: []string{"10.20.0.3/24"}})
	d := Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{guest("a", on("lan", "")), guest("b", on("lan", "10.20.0.2/24")), seen}}
	p := Make(d, Observed{}, policy())
	for k, want := range map[string]string{"a/eth0": "10.20.0.4/24", "b/eth0": "10.20.0.2/24", "c/eth0": "10.20.0.3/24"} {
		equalText(t, k, had(p, k), want)
	}
	if len(p.Networks[0].Notes) > 0 {
		t.Error(p.Networks[0].Notes)
	}
}

// A6: an address becomes free in the same declaration that moves its machine to
// another address, in any order of the machines' names.
func TestAnAddressMovesToAnotherMachineInOneDeclaration(t *testing.T) {
	d, o := Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{guest("b", on("lan", "10.20.0.2/24"))}}, Observed{}
	carryOut(t, &d, &o)
	d.Machines = []Machine{guest("a", on("lan", "10.20.0.2/24")), guest("b", on("lan", "10.20.0.3/24"))}
	p := Make(d, o, policy())
	equalText(t, "a", had(p, "a/eth0"), "10.20.0.2/24")
	equalText(t, "b", had(p, "b/eth0"), "10.20.0.3/24")
	if err := Refuse(d, o, policy(), map[string]bool{"machine/a": true, "machine/b": true}); err != nil {
		t.Error(err)
	}
}

// While the restart of an instance that moves to another address is not allowed, no
// other machine gets the address that it still has.
func TestAnAddressMovesWhenItsInstanceHasLeftIt(t *testing.T) {
	d, o := Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{guest("b", on("lan", "10.20.0.2/24"))}}, Observed{}
	carryOut(t, &d, &o)
	b := guest("b", on("lan", "10.20.0.3/24"))
	b.Status.Instance, b.AttachmentsMatch = &spec.InstanceInfo{}, false
	d.Machines = []Machine{guest("a", on("lan", "10.20.0.2/24")), b}
	p := carryOut(t, &d, &o)
	equalText(t, "a", had(p, "a/eth0"), "")
	if notes := strings.Join(p.Networks[0].Notes, "\n"); !strings.Contains(notes, "10.20.0.2") {
		t.Errorf("the notes are %q", notes)
	}
	d.Machines[1].AttachmentsMatch = true
	equalText(t, "a afterwards", had(carryOut(t, &d, &o), "a/eth0"), "10.20.0.2/24")
}

// A6: a declared address that another machine keeps is refused, with advice. If
// that machine goes or releases the address, the other machine waits.
func TestTakenAddressesAreRefused(t *testing.T) {
	d, o := Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{guest("a", on("lan", "")), guest("z", on("lan", "10.20.0.9/24"))}}, Observed{}
	carryOut(t, &d, &o)
	declared := d.Machines
	changed := map[string]bool{"machine/a": true, "machine/b": true, "machine/z": true}
	told := func(other, b string) string {
		return "machine/b: cannot give it " + b + " on network/lan: machine/" + other + " has it; choose another address, or first declare another address for machine/" + other
	}
	for _, c := range []struct {
		name   string
		change func(d *Desired)
		want   string
	}{
		{"chosen for another", func(d *Desired) { d.Machines[2] = guest("b", on("lan", "10.20.0.2/24")) }, told("a", "10.20.0.2")},
		{"declared by another", func(d *Desired) { d.Machines[2] = guest("b", on("lan", "10.20.0.9/24")) }, told("z", "10.20.0.9")},
		{"no longer declared", func(d *Desired) {
			d.Machines[1], d.Machines[2] = guest("z", on("lan", "")), guest("b", on("lan", "10.20.0.9/24"))
		}, told("z", "10.20.0.9")},
		{"free", func(d *Desired) { d.Machines[2] = guest("b", on("lan", "10.20.0.3/24")) }, ""},
		{"the other goes", func(d *Desired) {
			d.Machines[0].Dying, d.Machines[0].Status.Instance = true, &spec.InstanceInfo{}
			d.Machines[2] = guest("b", on("lan", "10.20.0.2/24"))
		}, ""},
		{"the other leaves", func(d *Desired) {
			d.Machines[0] = Machine{Name: "a", UID: "m-a", Status: spec.MachineStatus{Instance: &spec.InstanceInfo{}}}
			d.Machines[2] = guest("b", on("lan", "10.20.0.2/24"))
		}, ""},
		{"two declare one", func(d *Desired) {
			d.Machines[1], d.Machines[2] = guest("z", on("lan", "10.20.0.8/24")), guest("b", on("lan", "10.20.0.8/24"))
		}, "machine/z: cannot give it 10.20.0.8 on network/lan: machine/b has it; choose another address, or first declare another address for machine/b"},
	} {
		d.Machines = append(append([]Machine{}, declared...), guest("b", nil))
		c.change(&d)
		err, got := Refuse(d, o, policy(), changed), ""
		if err != nil {
			got = err.Error()
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("%s: kind %s", c.name, fault.KindOf(err))
			}
		}
		equalText(t, c.name, got, c.want)
	}
}

// A6: on a network without addresses of its own, a machine has its declared
// address once.
func TestADeclaredAddressOutsideEverySubnet(t *testing.T) {
	d := Desired{Networks: []Network{network("lan", spec.Network{Bridge: "br-lan"})}, Machines: []Machine{guest("a", on("lan", "10.20.0.7/24"))}}
	o := Observed{}
	for range 2 {
		carryOut(t, &d, &o)
	}
	if got := d.Networks[0].Status.Guests["a/eth0"].Addresses; !slices.Equal(got, []string{"10.20.0.7/24"}) {
		t.Errorf("it has %q", got)
	}
}

// A change is not held by a machine that waits for the new version, with or
// without an address of its own. A machine whose worker says that it does not
// use the interface waits, too, whatever its address.
func TestAChangeIsNotHeldByTheMachineThatWaitsForIt(t *testing.T) {
	for _, c := range []struct {
		address, want string
		uses          []string
	}{
		{"10.21.0.7/24", "10.21.0.7/24", nil},
		{"", "", nil},
		{"10.20.0.77/24", "10.20.0.77/24", []string{}},
	} {
		d, o := Desired{Networks: []Network{network("lan", lan())}}, Observed{}
		carryOut(t, &d, &o)
		web := guest("web", on("lan", c.address))
		web.Status.Instance, web.Status.UsesNICs, web.AttachmentsMatch = &spec.InstanceInfo{}, c.uses, false
		d.Machines = []Machine{web}
		d.Networks[0].Record.Network = spec.Network{Bridge: "br-new"}
		for range 3 {
			d.Networks[0].Status.Guests = Make(d, o, policy()).Networks[0].Guests // stored before the links change
			p := carryOut(t, &d, &o)
			if p.Networks[0].Held != "" || had(p, "web/eth0") != c.want {
				t.Fatalf("held: %q, web has %q, want %q", p.Networks[0].Held, had(p, "web/eth0"), c.want)
			}
		}
	}
}
