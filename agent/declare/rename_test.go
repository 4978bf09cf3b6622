package declare

import (
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Of two machines with the same former name in a document of an older agent, the
// first by name is the renamed machine. The other one is a new machine.
func TestTwoMachinesWithOneFormerName(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	w, err := New([]state.Object{{ID: ID("machine/web"), UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	renamed := record.Machine
	renamed.RenamedFrom = "web"
	w.putAll(applied("site", spec.Declaration{Machines: map[string]spec.Machine{"one": renamed, "two": renamed}}))
	for name, want := range map[string]string{"one": "web", "two": ""} {
		if got := w.objects["machine/"+name].machine().InstanceName; got != want {
			t.Errorf("%s has the instance %q, want %q", name, got, want)
		}
	}
}

// The instance of a renamed machine, which keeps its name, is adopted as that machine.
func TestTheMachineOfAnInstance(t *testing.T) {
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}, InstanceName: "web"}
	w, err := New([]state.Object{{ID: ID("machine/www"), UID: "u", Revision: 1, Life: state.Alive, Spec: spec.Encode(record)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for instance, machine := range map[string]string{"web": "www", "db": "db"} {
		if is := w.MachineOf(spec.LXD, instance); is != machine {
			t.Errorf("lxd/%s is adopted as %s", instance, is)
		}
	}
	if is := w.MachineOf(spec.KVM, "web"); is != "web" {
		t.Errorf("an instance of another hypervisor is adopted as %s", is)
	}
}
