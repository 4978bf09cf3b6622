package containersetup_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"hostler/agent/containersetup"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// While the instances are in another folder, the host is not prepared, a
// provisioner of an earlier agent is stopped, and the machines say why. The folder
// of a type that is ready is recorded.
func TestTypeWithInstancesInAnotherFolderIsNotSetUp(t *testing.T) {
	r := newRig(t)
	const why = "LXD made machine/web in /old and has now the folder /new without them"
	var before atomic.Value
	var apart atomic.Bool
	apart.Store(true)
	r.folder = func(_ context.Context, recorded string) (string, error) {
		before.Store(recorded)
		if apart.Load() {
			return "", fault.New(fault.NeedsOperator, why)
		}
		return "/new", nil
	}
	recorded := state.Write{
		ID: state.ID{Kind: spec.KindContainerType, Name: "lxd"}, Life: state.Alive, Spec: spec.Encode(spec.TypeRecord{}),
		Status: spec.Encode(spec.TypeStatus{State: containersetup.StateReady, Folder: "/old"}),
	}
	if _, err := r.store.Write(t.Context(), state.Atomic, recorded); err != nil {
		t.Fatal(err)
	}
	r.works[spec.LXD].set(true)
	r.declare("web", spec.LXD)
	stop := r.start()
	r.eventually("machine and type say why", func() bool { // the type is written later
		return strings.Contains(r.machine("web").Message, why) && r.status(spec.LXD).State != containersetup.StateReady
	})
	s := r.status(spec.LXD)
	if s.State != containersetup.StateError || s.Attempts.ErrorKind != string(fault.NeedsOperator) || s.Folder != "/old" || before.Load() != "/old" {
		t.Errorf("status %+v, asked with %v", s, before.Load())
	}
	if n := r.hosts[spec.LXD].count(); n != 0 || r.works[spec.LXD].running() {
		t.Errorf("prepared %d times; the provisioner runs: %v", n, r.works[spec.LXD].running())
	}
	stop()
	apart.Store(false)
	r.start()
	retry := state.Write{ID: recorded.ID, Revision: state.AnyRevision, Spec: spec.Encode(spec.TypeRecord{RetryRequest: 1})}
	if _, err := r.store.Write(t.Context(), state.Atomic, retry); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is ready", r.works[spec.LXD].running)
	if s := r.status(spec.LXD); s.Folder != "/new" {
		t.Errorf("status %+v", s)
	}
}
