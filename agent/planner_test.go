package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/containersetup"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/brokertest"
	"hostler/initialisers"
	kvminit "hostler/initialisers/kvm"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run/runtest"
	"hostler/packaging"
)

// twoTypes returns an agent on a host with two hypervisors and a machine to
// create on each.
func twoTypes(t *testing.T) (h *host, lxd, kvm *brokertest.Fake, objects []declare.Planned) {
	t.Helper()
	l := newLossyHost(t)
	l.open()
	t.Cleanup(l.close)
	kvm = brokertest.New()
	l.drivers[spec.KVM] = constructors{driver: func(*host) (driver, error) { return driver{Broker: kvm, Images: kvm}, nil }}
	l.initialisers = map[spec.ContainerType]initialisers.Initialiser{spec.LXD: &readied{}, spec.KVM: &readied{}}
	for name, kind := range map[string]spec.ContainerType{"vm": spec.KVM, "web": spec.LXD} {
		objects = append(objects, declare.Planned{After: state.Object{
			ID: state.ID{Kind: spec.KindMachine, Name: name}, Life: state.Alive, Generation: 1,
			Spec: spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: kind, Image: "debian/12"}}),
		}})
	}
	return l.host, l.lxd, kvm, objects
}

// A hypervisor that is down prevents only plans with its own machines (C3).
func TestAPlanAsksOnlyTheHypervisorsOfItsMachines(t *testing.T) {
	h, _, kvm, objects := twoTypes(t)
	kvm.Fail(brokertest.List, "", -1, fault.New(fault.Transient, "cannot list libvirt's domains: it is down"))
	steps, err := h.planner().Plan(t.Context(), objects, map[string]bool{"machine/web": true})
	if err != nil || len(steps) != 1 || steps[0].Object != "machine/web" || steps[0].Action != "create" {
		t.Errorf("steps %+v, %v", steps, err)
	}
	if n := kvm.Calls(brokertest.List); n != 0 {
		t.Errorf("libvirt was asked %d times", n)
	}
	_, err = h.planner().Plan(t.Context(), objects, map[string]bool{"machine/vm": true})
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "it is down") {
		t.Errorf("of its own machine: %v", err)
	}
}

// readied is an initialiser with nothing to do, or with the work in lacks.
type readied struct {
	initialisers.Initialiser
	lacks string
	asked int
}

func (r *readied) Satisfied(context.Context) (bool, string) {
	r.asked++
	return r.lacks == "", r.lacks
}

func (*readied) Supported(context.Context) (bool, string) { return true, "" }

// The plan for the first machine of a type that the host cannot run gives the
// reason.
func TestAPlanTellsWhyATypeCannotBeSetUp(t *testing.T) {
	h, _, _, objects := twoTypes(t)
	p := paths.New(t.TempDir(), "", "", "")
	if err := os.Mkdir(p.Host("/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.initialisers[spec.KVM] = kvminit.New(kvminit.Options{
		Paths: p, Packages: packaging.NewApt(p, runtest.NewFake(), runtest.NewFake(), "", nil, slog.New(slog.DiscardHandler)),
	})
	for release, want := range map[string]string{
		"ID=ubuntu\nVERSION_ID=22.04\n": "upgrade the host to Ubuntu 24.04", "ID=plan9\n": "its packages there are unknown",
	} {
		if err := os.WriteFile(p.OSRelease(), []byte(release), 0o644); err != nil {
			t.Fatal(err)
		}
		steps, err := h.planner().Plan(t.Context(), objects, map[string]bool{"machine/vm": true})
		if err != nil || len(steps) != 2 || steps[0].Object != "type/kvm" || steps[0].Action != "initialise" || !strings.Contains(steps[0].Detail, want) {
			t.Errorf("%q: steps %+v, %v", release, steps, err)
		}
	}
}

// The plan for the first machine of a type names all changes to an existing
// hypervisor. Once the type is ready, the initialiser is not asked.
func TestAPlanNamesWhatIsDoneToAHypervisorThatIsThere(t *testing.T) {
	h, _, _, objects := twoTypes(t)
	lxd := &readied{lacks: "LXD gets bridge lxdbr0"}
	h.initialisers[spec.LXD] = lxd
	plan := func() []client.Step {
		t.Helper()
		steps, err := h.planner().Plan(t.Context(), objects, map[string]bool{"machine/web": true})
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	if steps := plan(); len(steps) != 2 || steps[0].Object != "type/lxd" || steps[0].Action != "initialise" || steps[0].Detail != lxd.lacks {
		t.Errorf("steps %+v", steps)
	}
	kept := state.Write{ID: state.ID{Kind: spec.KindContainerType, Name: "lxd"}, Spec: json.RawMessage("{}"), Life: state.Alive}
	for _, c := range []struct {
		state string
		asked int
	}{{containersetup.StateError, 1}, {containersetup.StateReady, 0}} {
		kept.Status = spec.Encode(spec.TypeStatus{State: c.state})
		results, err := h.store.Write(t.Context(), state.Atomic, kept)
		if err != nil {
			t.Fatal(err)
		}
		kept = state.Write{ID: kept.ID, UID: results[0].Object.UID, Revision: state.AnyRevision}
		lxd.asked = 0
		if steps := plan(); len(steps) != 1+c.asked || lxd.asked != c.asked {
			t.Errorf("%s: steps %+v, asked %d times", c.state, steps, lxd.asked)
		}
	}
}
