package planning

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/initialisers"
)

// meanwhile is a hypervisor during whose listing something happens.
type meanwhile struct {
	*brokertest.Fake
	do func()
}

// List implements containerbroker.Broker.
func (m meanwhile) List(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	m.do()
	return m.Fake.List(ctx, detail)
}

// The worker may make or record an instance while a plan reads the host. The
// plan must not take this instance for a foreign one.
func TestInstanceRecordedDuringAPlan(t *testing.T) {
	const uid, token = "uid-of-web", "token"
	web := state.ID{Kind: spec.KindMachine, Name: "web"}
	off := false
	record := spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.LXD, Image: "lxd:tiny", Running: &off}}
	for name, when := range map[string]struct{ begun, made, again bool }{
		"made and recorded during the listing":       {},
		"made again and recorded during the listing": {again: true},
		"begun before the plan":                      {begun: true},
		"recorded after the objects were read":       {begun: true, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, fake := t.Context(), brokertest.New()
			store, _, err := state.Open(ctx, state.Options{Dir: filepath.Join(t.TempDir(), "store")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			was := spec.MachineStatus{State: spec.MachineStopped, ObservedGeneration: 1}
			if when.again {
				was.Instance = &spec.InstanceInfo{Name: "web", Token: "earlier", Image: "lxd:tiny"}
			}
			_, err = store.Write(ctx, state.Atomic, state.Write{ID: web, UID: uid, Life: state.Alive, Spec: spec.Encode(record), Status: spec.Encode(was)})
			must(err)
			before, err := store.Get(ctx, web)
			must(err)
			begin := func() {
				must(store.Begin(ctx, state.Intent{Token: token, Object: web, UID: uid, Action: "create", Began: time.Now()}))
			}
			finish := func() {
				fake.Add(containerbroker.Instance{
					Name: "web", Status: containerbroker.StatusStopped,
					Stamp: &containerbroker.Stamp{UID: uid, Token: token},
				})
				status := spec.MachineStatus{State: spec.MachineStopped, ObservedGeneration: 1, Instance: &spec.InstanceInfo{Name: "web", Token: token, Image: "lxd:tiny"}}
				_, err := store.Write(ctx, state.Atomic, state.Write{ID: web, UID: before.UID, Revision: state.AnyRevision, Status: spec.Encode(status)})
				must(err)
				must(store.End(ctx, token))
			}
			if when.begun {
				begin()
			}
			if when.made {
				finish()
			}
			p := Planner{
				Store: store, Types: []spec.ContainerType{spec.LXD}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				Host: func(context.Context) (spec.HostRecord, error) { return spec.HostRecord{}, nil },
				Broker: func(spec.ContainerType) (containerbroker.Broker, error) {
					return meanwhile{fake, func() {
						if !when.begun {
							begin()
						}
						if !when.made {
							finish()
						}
					}}, nil
				},
				Initialiser: func(spec.ContainerType) initialisers.Initialiser { return nil },
			}
			_, err = store.Write(ctx, state.Atomic, state.Write{
				ID: state.ID{Kind: spec.KindContainerType, Name: "lxd"}, Life: state.Alive, Spec: []byte("{}"), Status: []byte(`{"state":"ready"}`),
			})
			must(err)
			steps, err := p.Plan(ctx, []declare.Planned{{Before: &before, After: before}}, map[string]bool{"machine/web": true})
			must(err)
			for _, s := range steps {
				if s.Action == "conflict" {
					t.Errorf("the plan has %+v", s)
				}
			}
		})
	}
}
