package provisioner_test

import (
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/brokertest"
)

// An administrator's key that is added to hostler.yaml takes effect only in new
// machines. It causes no recreate or restart, even if the last one was allowed,
// and no second first boot. A machine that declares `on-change: rerun` gets the key
// at its next restart.
func TestAnotherHostKeyTouchesNoMachine(t *testing.T) {
	r := newRig(t)
	config := spec.DefaultConfig()
	keys := func(all ...string) {
		config.AuthorizedKeys = all
		r.write(state.Write{
			ID: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Revision: r.revisionOf(spec.KindHost, spec.HostName), Life: state.Alive,
			Spec: spec.Encode(spec.HostRecord{Config: config}),
		})
	}
	keys("ssh-ed25519 AAAA one")
	allowed := func(m *spec.MachineRecord) { m.Consent([]string{"recreate"}) }
	r.declare("web", allowed)
	r.declare("again", func(m *spec.MachineRecord) {
		m.Machine.CloudInit.OnChange = spec.OnChangeRerun
		m.Consent([]string{"restart"})
	})
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.awaitState("again", spec.MachineRunning)
	r.awaitPass()
	made, _ := r.fake.Get("web")
	starts := r.fake.Calls(brokertest.SetPower)

	keys("ssh-ed25519 AAAA one", "ssh-ed25519 AAAA two")
	needs := func(name, impact string) {
		t.Helper()
		r.eventually(name+" says that it needs a "+impact, func() bool {
			s, _ := r.status(name)
			return s.State == spec.MachineRunning && strings.Contains(s.Message, impact+": changes user-data")
		})
	}
	needs("web", "recreate")
	needs("again", "restart")
	if now, _ := r.fake.Get("web"); now.Stamp.Token != made.Stamp.Token || r.fake.Calls(brokertest.SetPower) != starts {
		t.Errorf("a machine was touched: %s", r.fake)
	}
	// The status of an earlier version tells it by the generation.
	o, err := r.store.Get(t.Context(), state.ID{Kind: spec.KindMachine, Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	former, _ := r.status("web")
	former.ConsentsUsed, former.FormerConsentUsed = 0, o.Generation
	r.write(state.Write{ID: o.ID, Revision: state.AnyRevision, Status: spec.Encode(former)})
	r.eventually("the status is converted", func() bool {
		s, _ := r.status("web")
		return s.ConsentsUsed == 1 && s.FormerConsentUsed == 0
	})
	// No other request of the user renews a consent.
	observed := func() {
		t.Helper()
		r.eventually("the record observed", func() bool {
			o, err := r.store.Get(t.Context(), state.ID{Kind: spec.KindMachine, Name: "web"})
			var s spec.MachineStatus
			return err == nil && o.Decode(nil, &s) == nil && s.ObservedGeneration == o.Generation && s.State == spec.MachineRunning
		})
	}
	for what, change := range map[string]func(m *spec.MachineRecord){
		"a restart": func(m *spec.MachineRecord) { m.RestartRequest++ },
		"a retry":   func(m *spec.MachineRecord) { m.RetryRequest++ },
		"a start":   func(m *spec.MachineRecord) { m.PowerOverride = new(true) },
		"a hold":    func(m *spec.MachineRecord) { m.Held = spec.HoldRemoval },
		"a name":    func(m *spec.MachineRecord) { m.Declaration = "other" },
	} {
		r.declare("web", allowed, change)
		observed()
		r.awaitPass()
		if now, _ := r.fake.Get("web"); now.Stamp.Token != made.Stamp.Token {
			t.Fatalf("%s recreated the machine", what)
		}
	}
	r.declare("web", allowed, allowed)
	r.eventually("the recreate that was allowed again", func() bool { now, ok := r.fake.Get("web"); return ok && now.Stamp.Token != made.Stamp.Token })
}
