package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/provisioner"
	"hostler/agent/services/adoption"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// The export of undeclared instances can be parsed again. An instance that
// cannot be declared as it is gets a note in the export and cannot be adopted.
func TestForeignInstancesThatCannotBeDeclared(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	defer l.close()
	for _, name := range []string{"web", "Web1", "win_10", "db-"} {
		l.lxd.Add(containerbroker.Instance{Name: name, Status: containerbroker.StatusStopped, ImageID: "abc"})
	}
	l.lxd.Add(containerbroker.Instance{Name: "bare", Status: containerbroker.StatusStopped})
	l.lxd.Add(containerbroker.Instance{Name: "half", Status: containerbroker.StatusRunning, Odd: "limits.memory is 50%"})
	a := l.adopter()
	text, _, err := a.Export(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := spec.Parse("again", text)
	if err != nil {
		t.Fatalf("cannot be read again: %v\n%s", err, text)
	}
	if names := d.Objects(); !slices.Equal(names, []string{"machine/bare", "machine/web"}) {
		t.Errorf("exported are %v", names)
	}
	for _, name := range []string{"Web1", "win_10", "db-"} {
		if !strings.Contains(string(text), "# lxd/"+name+" is not here: ") {
			t.Errorf("nothing is said of %s:\n%s", name, text)
		}
		if _, err := a.Inspect(t.Context(), spec.LXD, name); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "rename") {
			t.Errorf("%s can be taken over: %v", name, err)
		}
	}
	if _, err := a.Inspect(t.Context(), spec.LXD, "half"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "limits.memory is 50%") ||
		!strings.Contains(string(text), "# lxd/half is not here: limits.memory is 50%") {
		t.Errorf("what cannot be declared would be lost: %v\n%s", err, text)
	}
	if _, err := a.Inspect(t.Context(), spec.LXD, "web"); err != nil {
		t.Error(err)
	}
}

// P28: an adopted orphan gets its former record, unless it had networks or
// storage, since others may have these by now. The disk of a KVM machine refers
// to no image, so the image comes from the former record.
func TestLeftInstancesAreTheirMachinesAgain(t *testing.T) {
	for kind, other := range map[spec.ContainerType]spec.ContainerType{spec.LXD: spec.KVM, spec.KVM: spec.LXD} {
		was := spec.Machine{Type: kind, Image: "debian/12", CPUs: 4, Retain: true, CloudInit: spec.CloudInit{UserData: "#cloud-config\n"}}
		stamped := func(change func(*spec.Machine)) string {
			m := was
			change(&m)
			return string(spec.Encode(provisioner.StampedRecord{Name: "web", Declaration: "site", Machine: m}))
		}
		as := stamped(func(*spec.Machine) {})
		for what, c := range map[string]struct {
			record string
			there  []string
			former bool
		}{
			"as it was":           {record: as, there: []string{"db"}, former: true},
			"no record":           {record: "{"},
			"it is declared anew": {record: as, there: []string{"web"}},
			"of another type":     {record: stamped(func(m *spec.Machine) { m.Type = other })},
			"with a network":      {record: stamped(func(m *spec.Machine) { m.Networks = map[string]spec.NIC{"eth0": {Network: "lan"}} })},
			"with storage":        {record: stamped(func(m *spec.Machine) { m.Storage = []spec.Attachment{{Volume: "data"}} })},
			"with a port":         {record: stamped(func(m *spec.Machine) { m.Publish = []spec.Publish{{Protocol: "tcp", HostPort: 8080, Port: 80}} })},
		} {
			h, lxd, kvm, _ := twoTypes(t)
			for _, name := range c.there {
				w := state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{Machine: was})}
				if _, err := h.store.Write(t.Context(), state.Atomic, w); err != nil {
					t.Fatal(err)
				}
			}
			left := containerbroker.Instance{Name: "web", Status: containerbroker.StatusRunning, ImageID: strings.Repeat("a", 64), Properties: containerbroker.Properties{CPUs: 2}}
			want := adoption.MachineOf(left, kind)
			left.Stamp = &containerbroker.Stamp{Namespace: "hostler", UID: "u", Record: c.record}
			map[spec.ContainerType]*brokertest.Fake{spec.LXD: lxd, spec.KVM: kvm}[kind].Add(left)
			got, err := h.adopter().Inspect(t.Context(), kind, "web")
			if c.former {
				want.Image, want.CloudInit, want.Retain = was.Image, was.CloudInit, true
			}
			if diff := cmp.Diff(want, got.Machine); err != nil || (got.UID == "u") != c.former || diff != "" {
				t.Errorf("%s, %s: uid %q, %v: %s", kind, what, got.UID, err, diff)
			}
		}
	}
}

// A frozen guest is adopted as running, because a declaration as stopped would
// stop it and lose its memory. An instance between two states cannot be
// adopted.
func TestInstancesAreTakenOverAsTheyAre(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	defer l.close()
	a := l.adopter()
	for status, runs := range map[containerbroker.Status]bool{
		containerbroker.StatusRunning: true, containerbroker.StatusFrozen: true, containerbroker.StatusStopped: false,
	} {
		l.lxd.Add(containerbroker.Instance{Name: "web", Status: status, ImageID: "abc"})
		found, err := a.Inspect(t.Context(), spec.LXD, "web")
		if err != nil || *found.Machine.Running != runs {
			t.Errorf("%s: running %v, %v", status, found.Machine.Running, err)
		}
	}
	for _, status := range []containerbroker.Status{containerbroker.StatusBusy, containerbroker.StatusHalfMade, containerbroker.StatusUnknown} {
		l.lxd.Add(containerbroker.Instance{Name: "web", Status: status, ImageID: "abc"})
		if _, err := a.Inspect(t.Context(), spec.LXD, "web"); !fault.Is(err, fault.NotReady) || !strings.Contains(err.Error(), string(status)) {
			t.Errorf("%s: %v", status, err)
		}
	}
}
