package provisioner_test

import (
	"errors"
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

// P24: an orphan with the name of a declared machine is harvested without a
// record. A failure is not that machine's failure, and is retried after growing
// delays.
func TestP24LeftoverNamedLikeALiveMachine(t *testing.T) {
	r := newRig(t)
	r.config.Harvest, r.config.RetryDelay = provisioner.HarvestAll, 500*time.Millisecond
	r.fake.Add(containerbroker.Instance{
		Name: "web", Status: containerbroker.StatusStopped,
		Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "gone", Token: "x"},
	})
	r.fake.Fail(brokertest.Delete, "web", -1, errors.New("it is protected"))
	r.declare("web")
	r.start()
	r.eventually("a delete", func() bool { return r.fake.Calls(brokertest.Delete) >= 1 })
	for range 3 {
		r.awaitPass()
	}
	if n := r.fake.Calls(brokertest.Delete); n != 1 {
		t.Errorf("%d deletes without a pause", n)
	}
	s := r.awaitState("web", spec.MachineError)
	if !strings.Contains(s.Message, "left over from an earlier record") || s.Attempts.Count != 0 {
		t.Errorf("the machine's status is %+v", s)
	}
	r.fake.Heal()
	r.awaitState("web", spec.MachineRunning)
}

// A record being removed and an orphan under its name are removed one after the
// other: first the record, then the instance.
func TestP24LeftoverNamedLikeADyingMachine(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestAll
	r.fake.Add(containerbroker.Instance{
		Name: "web", Status: containerbroker.StatusStopped,
		Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "gone", Token: "x"},
	})
	r.declare("web")
	r.remove("web")
	r.start()
	r.awaitGone("web")
	r.eventually("the end of it", func() bool { _, there := r.fake.Get("web"); return !there })
}

// P28: a failed release is retried when its delay is over, not before.
func TestP28FailedReleaseWaitsForItsRetry(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay = 500 * time.Millisecond
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Retain = true })
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.Fail(brokertest.Unstamp, "web", -1, errors.New("it is protected"))
	r.remove("web")
	r.eventually("a release", func() bool { return r.fake.Calls(brokertest.Unstamp) >= 1 })
	for range 3 {
		r.awaitPass()
	}
	if n := r.fake.Calls(brokertest.Unstamp); n != 1 {
		t.Errorf("%d releases without a pause", n)
	}
	s, _ := r.status("web")
	if s.State != spec.MachineDying || !strings.Contains(s.Message, "it is protected") {
		t.Errorf("status %+v", s)
	}
	r.fake.Heal()
	r.awaitGone("web")
	if inst, there := r.fake.Get("web"); !there || inst.Stamp != nil {
		t.Errorf("the instance: %+v", inst)
	}
}

// A record that cannot be removed is retried after growing delays.
func TestP25FailedForgetWaits(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay = 500 * time.Millisecond
	var mu sync.Mutex
	tries := 0
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		if !w.Delete {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if tries++; tries < 3 {
			return errors.New("no")
		}
		return nil
	}}
	r.declare("web")
	r.remove("web")
	began := time.Now()
	r.start()
	r.awaitGone("web")
	if took := time.Since(began); took < time.Second {
		t.Errorf("three tries in %s", took)
	}
}

// The status of a renamed machine names the instance that exists, also after a
// recreate.
func TestARenamedMachineIsMadeAgain(t *testing.T) {
	r := newRig(t)
	renamed := func(m *spec.MachineRecord) { m.InstanceName = "web" }
	r.declare("www", renamed)
	r.start()
	r.awaitState("www", spec.MachineRunning)
	made, _ := r.fake.Get("web")
	r.declare("www", renamed, func(m *spec.MachineRecord) {
		m.Machine.Image = "debian/13"
		m.Consent([]string{"recreate"})
	})
	r.eventually("the recreate", func() bool { now, there := r.fake.Get("web"); return there && now.Stamp.Token != made.Stamp.Token })
	if s := r.awaitState("www", spec.MachineRunning); s.Instance.Name != "web" {
		t.Errorf("the instance is named %q", s.Instance.Name)
	}
}
