package planning

import (
	"slices"
	"testing"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// D10: a plan shows which ports of the host will lead to a machine, and from where.
func TestPlanShowsThePublishedPorts(t *testing.T) {
	http := spec.Publish{Protocol: "tcp", HostPort: 8080, Port: 80}
	inside, other := http, spec.Publish{Protocol: "udp", HostPort: 53, Port: 5353}
	inside.Sources = []string{"10.1.0.0/16", "10.0.0.0/16", "10.0.0.0/16"}
	object := func(publish ...spec.Publish) state.Object {
		return state.Object{ID: state.ID{Kind: spec.KindMachine, Name: "web"}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{Machine: spec.Machine{Publish: publish}})}
	}
	for name, c := range map[string]struct {
		before, after []spec.Publish
		from, to      string
	}{
		"opened":        {nil, []spec.Publish{http}, "", "tcp 8080 to 80"},
		"closed":        {[]spec.Publish{http}, nil, "tcp 8080 to 80", ""},
		"other sources": {[]spec.Publish{inside}, []spec.Publish{http}, "tcp 8080 to 80 from 10.0.0.0/16 10.1.0.0/16", "tcp 8080 to 80"},
		"another order": {[]spec.Publish{http, other}, []spec.Publish{other, http}, "", ""},
	} {
		before := object(c.before...)
		step, shown := publishing([]declare.Planned{{Before: &before, After: object(c.after...)}})["web"]
		want := []client.Change{{Field: "publish", From: c.from, To: c.to, Impact: containerbroker.ImpactLive}}
		if shown != (c.from != c.to) || shown && !slices.Equal(step.Changes, want) {
			t.Errorf("%s: %v %+v", name, shown, step)
		}
	}
	if steps := publishing([]declare.Planned{{After: object(http)}}); len(steps) != 0 {
		t.Errorf("a new machine changes %v", steps)
	}
	routes := func(router bool) state.Object {
		o := object()
		o.Spec = spec.Encode(spec.MachineRecord{Machine: spec.Machine{Networks: map[string]spec.NIC{"eth0": {Network: "lan", Router: router}, "eth1": {Network: "wan"}}}})
		return o
	}
	host := routes(false)
	router := publishing([]declare.Planned{{Before: &host, After: routes(true)}})["web"]
	if !slices.Equal(router.Changes, []client.Change{{Field: "router", To: "eth0", Impact: containerbroker.ImpactLive}}) {
		t.Errorf("a machine that becomes a router: %+v", router)
	}
	stored := client.Step{Object: "machine/web", Changes: []client.Change{{Field: containerbroker.FieldRecord}}}
	before := object()
	if shown := withoutBookkeeping([]client.Step{stored, publishing([]declare.Planned{{Before: &before, After: object(http)}})["web"]}); len(shown) != 1 || shown[0].Impact != containerbroker.ImpactLive {
		t.Errorf("with the step that stores the declaration: %+v", shown)
	}
}
