package provisioner_test

import (
	"errors"
	"slices"
	"testing"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// A machine whose create the hypervisor refused has no instance, so it goes
// without consent when no document declares it any more. While the outcome of
// the create is unknown, the machine is held.
func TestRefusedCreateHoldsNoRemoval(t *testing.T) {
	lost := errors.New("the connection broke")
	for what, err := range map[string]error{
		"refused": containerbroker.NotMade(fault.New(fault.Invalid, "the pool has no space")),
		"lost":    fault.Wrap(fault.NeedsOperator, lost),
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			r.fake.Fail(brokertest.Create, "web", -1, err)
			declaration := spec.Encode(spec.DeclarationRecord{Source: "/etc/hostler/conf.d/test.yaml"})
			r.write(state.Write{ID: state.ID{Kind: spec.KindDeclaration, Name: "test"}, Spec: declaration, Life: state.Alive})
			r.declare("web")
			r.start()
			r.awaitState("web", spec.MachineError)
			r.awaitPass()
			held, _, failed := r.declared().ApplyFolder(declare.Folder{
				Path:  "/etc/hostler/conf.d",
				Files: map[string]declare.File{"/etc/hostler/conf.d/other.yaml": {Content: []byte("version: 1\n")}},
			}, declare.Host{Refuse: func([]declare.Planned) error { return nil }})
			if failed != nil || len(held.Refused) != 0 {
				t.Fatal(failed, held.Refused)
			}
			if is := slices.Contains(held.Undeclared, "machine/web"); is != errors.Is(err, lost) {
				t.Errorf("held: %v", held.Undeclared)
			}
		})
	}
}

// declared returns the declared state of the store.
func (r *rig) declared() *declare.State {
	r.t.Helper()
	objects, _, err := r.store.List(r.t.Context(), declare.Kinds...)
	if err != nil {
		r.t.Fatal(err)
	}
	intents, err := r.store.Intents(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	declared, err := declare.New(slices.DeleteFunc(objects, func(o state.Object) bool { return o.Name == "of-another-type" }), intents)
	if err != nil {
		r.t.Fatal(err)
	}
	return declared
}
