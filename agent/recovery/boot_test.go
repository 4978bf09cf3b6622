package recovery

import (
	"encoding/json"
	"log/slog"
	"testing"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/hosttest"
)

// After a boot of the host, no status says that a machine runs before the agent
// has looked at it. After a restart of only the agent, the statuses stay.
func TestBootOfTheHostForgetsHowMachinesAre(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := New(reconcile.Common{Store: store, Logger: slog.New(slog.DiscardHandler)}, Options{})
	id := state.ID{Kind: spec.KindMachine, Name: "web"}
	_, err = store.Write(t.Context(), state.Atomic, state.Write{
		ID: id, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{}),
		Status: spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "web"}, Addresses: []string{"10.0.0.7"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.host.Update(t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) { r.Facts.Boot = "first" }); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		boot string
		want spec.MachineState
	}{{"first", spec.MachineRunning}, {"", spec.MachineRunning}, {"second", spec.MachineUnknown}} {
		if err := r.forgetBoot(t.Context(), step.boot); err != nil {
			t.Fatal(err)
		}
		var status spec.MachineStatus
		o, err := store.Get(t.Context(), id)
		if err == nil {
			err = json.Unmarshal(o.Status, &status)
		}
		if err != nil || status.State != step.want {
			t.Errorf("in boot %q: %+v, %v", step.boot, status, err)
		}
	}
}
