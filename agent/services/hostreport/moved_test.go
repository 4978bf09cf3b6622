package hostreport

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/client"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/initialisers"
)

// ready is the initialiser of a type that needs nothing.
type ready struct{ initialisers.Initialiser }

func (ready) Supported(context.Context) (bool, string) { return true, "" }
func (ready) Satisfied(context.Context) (bool, string) { return true, "" }

// An instance that a user moved from one hypervisor to another is in the report
// and in doctor's checks, whether its machine is still declared or not. It is
// not among the orphans, which a harvest deletes.
func TestInstancesMovedToAnotherHypervisorAreReported(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = store.Write(t.Context(), state.Atomic, state.Write{
		ID: state.ID{Kind: spec.KindMachine, Name: "web"}, UID: "uid-web", Life: state.Alive,
		Spec: spec.Encode(spec.MachineRecord{Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	brokers := map[spec.ContainerType]*brokertest.Fake{spec.LXD: brokertest.New(), spec.Incus: brokertest.New()}
	add := func(in, made spec.ContainerType, name string) {
		record := spec.Encode(provisioner.StampedRecord{Name: name, Machine: spec.Machine{Type: made}})
		brokers[in].Add(containerbroker.Instance{
			Name: name, Status: containerbroker.StatusStopped,
			Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: "t", Record: string(record)},
		})
	}
	add(spec.LXD, spec.LXD, "web")     // made again, empty
	add(spec.Incus, spec.LXD, "web")   // with the data
	add(spec.Incus, spec.LXD, "gone")  // its declaration is gone
	add(spec.Incus, spec.Incus, "old") // an orphan of Incus
	r := Reporter{
		Store: store, Types: []spec.ContainerType{spec.Incus, spec.LXD}, Now: time.Now,
		Config:      func() spec.Config { return spec.Config{Namespace: "hostler"} },
		Host:        func(context.Context) (spec.HostRecord, error) { return spec.HostRecord{}, nil },
		Broker:      func(t spec.ContainerType) (containerbroker.Broker, error) { return brokers[t], nil },
		Initialiser: func(spec.ContainerType) initialisers.Initialiser { return ready{} },
		Notices:     func(context.Context) []string { return nil },
	}
	seen, err := r.instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]client.UnknownInstance{{Type: "incus", Name: "old", UID: "uid-old"}}, seen.unknown); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]client.MovedInstance{
		{Type: "incus", Name: "gone", UID: "uid-gone", MadeAs: "lxd"}, {Type: "incus", Name: "web", UID: "uid-web", MadeAs: "lxd"},
	}, seen.moved); diff != "" {
		t.Error(diff)
	}
	checks, err := r.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]client.Check{}
	for _, c := range checks {
		found[c.Name] = c
	}
	if c := found["moved instances"]; c.Result != "warning" || !strings.HasPrefix(c.Message, "incus/gone (made as lxd), incus/web (made as lxd) ") ||
		!strings.Contains(c.Mend, "`hostler adopt") || strings.Contains(c.Mend, "harvest") {
		t.Errorf("moved: %+v", c)
	}
	if c := found["unknown instances"]; !strings.HasPrefix(c.Message, "incus/old have ") {
		t.Errorf("unknown: %+v", c)
	}
}
