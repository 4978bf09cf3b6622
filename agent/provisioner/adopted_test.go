package provisioner_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// meanwhileStore calls a function once, when armed, between the read of the
// records and the list of the instances.
type meanwhileStore struct {
	state.Backend
	once sync.Once
	do   func()
}

func (s *meanwhileStore) Intents(ctx context.Context) ([]state.Intent, error) {
	intents, err := s.Backend.Intents(ctx)
	s.once.Do(s.do)
	return intents, err
}

// P24: an instance that the user adopts between the read of the records and the
// list of the instances has a record and is no orphan.
func TestP24AdoptedMeanwhileIsNotHarvested(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	r.fake.Add(containerbroker.Instance{Name: "mine", Status: containerbroker.StatusRunning})
	r.backend = &meanwhileStore{Backend: r.store, do: func() {
		o := r.declare("mine", func(m *spec.MachineRecord) { m.Adopted = true })
		stamp := containerbroker.Stamp{Namespace: "hostler", UID: o.UID, Token: "adopted"}
		if err := r.store.Begin(t.Context(), state.Intent{Token: stamp.Token, Object: o.ID, UID: o.UID, Action: "adopt", Began: time.Now(), Owner: "lxd"}); err != nil {
			t.Error(err)
		}
		if err := r.fake.Stamp(t.Context(), "mine", nil, stamp); err != nil {
			t.Error(err)
		}
	}}
	r.start()
	s := r.awaitState("mine", spec.MachineRunning)
	if n := r.fake.Calls(brokertest.Delete); n != 0 || s.Instance.Token != "adopted" {
		t.Errorf("%d deletes, instance %+v\n%s", n, s.Instance, r.fake)
	}
}

// An orphan that the user adopts while the harvest stops it is kept.
func TestAdoptedDuringTheHarvestIsKept(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	old := containerbroker.Stamp{Namespace: "hostler", UID: "uid-left", Token: "old"}
	r.fake.Add(containerbroker.Instance{Name: "left", Status: containerbroker.StatusRunning, Stamp: &old})
	release := r.fake.Block(brokertest.SetPower, "left")
	r.start()
	r.eventually("the stop", func() bool { return r.fake.Calls(brokertest.SetPower) > 0 })
	record := spec.MachineRecord{Header: spec.Header{Declaration: "test"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}, Adopted: true}
	o := r.write(state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "left"}, UID: "uid-left", Life: state.Alive, Spec: spec.Encode(record)})
	if err := r.store.Begin(t.Context(), state.Intent{Token: "adopted", Object: o.ID, UID: o.UID, Action: "adopt", Began: time.Now(), Owner: "lxd"}); err != nil {
		t.Fatal(err)
	}
	release()
	if err := r.fake.Stamp(t.Context(), "left", &old, containerbroker.Stamp{Namespace: "hostler", UID: o.UID, Token: "adopted"}); err != nil {
		t.Fatal(err)
	}
	s := r.awaitState("left", spec.MachineRunning)
	if n := r.fake.Calls(brokertest.Delete); n != 0 || s.Instance.Token != "adopted" {
		t.Errorf("%d deletes, instance %+v\n%s", n, s.Instance, r.fake)
	}
}

// An adopted instance keeps the user-data of its creation. Once the user has it
// made again, the machine is like any other: changed user-data is reported, and
// reaches the guest when it is allowed.
func TestAnAdoptedMachineThatIsMadeAgain(t *testing.T) {
	r := newRig(t)
	mine := func(m *spec.MachineRecord) {
		m.Adopted, m.AdoptedToken, m.Machine.Image = true, "adopted", "lxd:unknown"
		m.Machine.CloudInit.UserData = "#!/bin/true\n"
	}
	o := r.declare("mine", mine)
	if err := r.store.Begin(t.Context(), state.Intent{Token: "adopted", Object: o.ID, UID: o.UID, Action: "adopt", Began: time.Now(), Owner: "lxd"}); err != nil {
		t.Fatal(err)
	}
	r.fake.Add(containerbroker.Instance{
		Name: "mine", Status: containerbroker.StatusRunning, Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: o.UID, Token: "adopted"},
	})
	r.start()
	r.awaitState("mine", spec.MachineRunning)
	r.awaitPass()
	if s, _ := r.status("mine"); s.Message != "" {
		t.Errorf("the adopted guest: %q", s.Message)
	}
	again := func(m *spec.MachineRecord) { mine(m); m.Machine.Image = "debian/12" }
	r.declare("mine", again, func(m *spec.MachineRecord) { m.Consent([]string{"recreate"}) })
	r.eventually("the recreate", func() bool {
		s, _ := r.status("mine")
		return s.State == spec.MachineRunning && s.Instance.Token != "adopted"
	})
	r.declare("mine", again, func(m *spec.MachineRecord) { m.Machine.CloudInit.UserData = "#!/bin/false\n" })
	r.eventually("other user-data to be reported", func() bool {
		s, _ := r.status("mine")
		return strings.Contains(s.Message, "recreate: changes user-data")
	})
}
