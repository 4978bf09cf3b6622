package api

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

func (b *bench) record(t testing.TB, name string) (state.Object, spec.MachineRecord) {
	t.Helper()
	o, err := b.store.Get(t.Context(), id(spec.KindMachine, name))
	if err != nil {
		t.Fatal(err)
	}
	var rec spec.MachineRecord
	if err := json.Unmarshal(o.Spec, &rec); err != nil {
		t.Fatal(err)
	}
	return o, rec
}

func actions(p client.Plan) string {
	var all []string
	for _, s := range p.Steps {
		all = append(all, s.Object+" "+s.Action)
	}
	return strings.Join(all, ", ")
}

func TestApplyWritesOnceAndASecondApplyWritesNothing(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	p, err := c.Plan(t.Context(), request("web", yaml("one", "two")))
	if err != nil || actions(p) != "machine/one create, machine/two create" || b.store.changes() != 0 {
		t.Fatalf("plan: %s, %v, %d writes", actions(p), err, b.store.changes())
	}
	p, err = c.Apply(t.Context(), request("web", yaml("one", "two")))
	if err != nil || !slices.Equal(p.Machines, []string{"one", "two"}) || b.store.changes() != 1 {
		t.Fatalf("apply: %+v, %v, %d writes", p, err, b.store.changes())
	}
	b.host.instances["one"], b.host.instances["two"] = "uid", "uid"
	p, err = c.Apply(t.Context(), request("web", yaml("one", "two")))
	if err != nil || len(p.Steps) != 0 || len(p.Removed) != 0 || b.store.changes() != 1 {
		t.Fatalf("second apply: %+v, %v, %d writes", p, err, b.store.changes())
	}
	d, err := c.Declarations(t.Context())
	if err != nil || len(d) != 1 || d[0].Source != "apply" || !slices.Equal(d[0].Objects, []string{"machine/one", "machine/two"}) {
		t.Fatalf("declarations: %+v, %v", d, err)
	}
}

func TestWhatIsNoLongerDeclaredGoes(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	kept := strings.Replace(yaml("one", "two", "three"), "three: {", "three: {retain: true, ", 1)
	if _, err := c.Apply(t.Context(), request("web", kept)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"one", "two", "three"} {
		b.host.instances[n] = "uid"
		b.runs(t, n)
	}
	// A machine with data waits for consent.
	p, err := c.Apply(t.Context(), request("web", strings.Replace(kept, "  two:", "#", 1)))
	if err != nil || actions(p) != "machine/two delete" || p.Steps[0].Held != "--allow destroy" || p.Steps[0].Allow != "destroy" || len(p.Removed) != 0 {
		t.Fatalf("apply: %+v, removed %v, %v", p.Steps, p.Removed, err)
	}
	if two, rec := b.record(t, "two"); two.Life != state.Alive || rec.Held != spec.HoldRemoval {
		t.Fatalf("two is %s, held %q", two.Life, rec.Held)
	}
	if _, err := c.Apply(t.Context(), request("web", kept)); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "two"); rec.Held != "" {
		t.Errorf("two is declared again and still held: %q", rec.Held)
	}
	destroy := request("web", yaml("one"))
	destroy.Allow = []string{"destroy"}
	p, err = c.Apply(t.Context(), destroy)
	if err != nil || actions(p) != "machine/three release, machine/two delete" || !slices.Equal(p.Removed, []string{"machine/three", "machine/two"}) {
		t.Fatalf("apply: %s, removed %v, %v", actions(p), p.Removed, err)
	}
	two, rec2 := b.record(t, "two")
	three, rec3 := b.record(t, "three")
	if two.Life != state.Dying || rec2.Released || three.Life != state.Dying || !rec3.Released {
		t.Errorf("two: %s released %v, three: %s released %v", two.Life, rec2.Released, three.Life, rec3.Released)
	}
	// A machine that is still being removed can be declared again: it is created
	// again afterwards.
	if _, err = c.Apply(t.Context(), request("web", yaml("one", "two"))); err != nil || !b.Awaits() {
		t.Fatalf("awaited %v, %v", b.Awaits(), err)
	}
	if o, _ := b.record(t, "two"); o.UID != two.UID || o.Life != state.Dying {
		t.Errorf("two is %s", o.Life)
	}
	b.end(t, "two")
	if err := b.Redeclare(t.Context()); err != nil || b.Awaits() {
		t.Fatalf("awaited %v, %v", b.Awaits(), err)
	}
	if o, _ := b.record(t, "two"); o.UID == two.UID || o.Life != state.Alive {
		t.Errorf("two is %s, uid %s, before %s", o.Life, o.UID, two.UID)
	}
}

// An object that never had an instance is removed at once, and the plan says
// so.
func TestWhatHasNoDataGoesAtOnce(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	p, err := c.Plan(t.Context(), request("web", yaml("one")))
	if err != nil || !slices.Equal(p.Removed, []string{"machine/two"}) || slices.ContainsFunc(p.Steps, func(st client.Step) bool { return st.Held != "" }) {
		t.Fatalf("%+v, removed %v, %v", p.Steps, p.Removed, err)
	}
}

func TestAMachineMovesBetweenDeclarationsOfOneApply(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("left", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	req := client.ApplyRequest{Documents: []client.Document{{Name: "left", Content: yaml("one")}, {Name: "right", Content: yaml("two")}}}
	if p, err := c.Apply(t.Context(), req); err != nil || len(p.Removed) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if o, rec := b.record(t, "two"); o.Life != state.Alive || rec.Declaration != "right" {
		t.Errorf("two is %s of %s", o.Life, rec.Declaration)
	}
}

func TestConflictsAndRefusals(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	b.files(t, map[string]string{"base.yaml": yaml("base1")})
	before := b.store.changes()
	for name, tc := range map[string]struct {
		req   client.ApplyRequest
		kind  fault.Kind
		words []string
	}{
		"the same object, other":     {request("other", strings.Replace(yaml("one"), "12", "13", 1)), fault.Conflict, []string{"machine/one", "other:3", "web:3"}},
		"an object of a file, other": {request("other", strings.Replace(yaml("base1"), "12", "13", 1)), fault.Conflict, []string{"machine/base1", "base.yaml:3", "other"}},
		"a file's name":              {request("base", yaml("x")), fault.Conflict, []string{"/etc/hostler/conf.d/base.yaml"}},
		"the same name":              {client.ApplyRequest{Documents: []client.Document{{Name: "x.yaml", Content: yaml("a")}, {Name: "y.yaml", Content: "name: x\n" + yaml("b")}}}, fault.Invalid, []string{"x.yaml and y.yaml are both the declaration x", "`name:`"}},
		"two in one request":         {client.ApplyRequest{Documents: []client.Document{{Name: "x", Content: yaml("a")}, {Name: "y", Content: strings.Replace(yaml("a"), "12", "13", 1)}}}, fault.Conflict, []string{"machine/a", "x:3", "y:3"}},
		"a bad document":             {request("bad", "version: 1\nmachine: {}\n"), fault.Invalid, []string{"bad:2:1", "machine"}},
		"two bad documents":          {client.ApplyRequest{Documents: []client.Document{{Name: "x", Content: "{"}, {Name: "y", Content: "["}}}, fault.Invalid, []string{"x:", "y:"}},
		"no document":                {client.ApplyRequest{Documents: []client.Document{}}, fault.Invalid, nil},
		"a bad impact":               {client.ApplyRequest{Documents: []client.Document{{Name: "web", Content: yaml("one")}}, Allow: []string{"explode"}}, fault.Invalid, []string{"explode", "restart, recreate, destroy"}},
	} {
		_, err := c.Apply(t.Context(), tc.req)
		if fault.KindOf(err) != tc.kind {
			t.Errorf("%s: %v (%s), want %s", name, err, fault.KindOf(err), tc.kind)
			continue
		}
		for _, w := range tc.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", name, err, w)
			}
		}
	}
	if b.store.changes() != before {
		t.Error("a refused apply has written")
	}
}

func TestWhatWasAllowedHoldsForOneChange(t *testing.T) {
	b := newBench(t)
	b.host.hold = "restart"
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	b.host.instances["one"] = "uid"
	req := request("web", strings.Replace(yaml("one"), "lxd,", "lxd, cpus: 2,", 1))
	p, err := c.Apply(t.Context(), req)
	if err != nil || len(p.Steps) != 1 || p.Steps[0].Held != "--allow restart" || p.Steps[0].Allow != "restart" {
		t.Fatalf("%+v, %v", p, err)
	}
	req.Allow = []string{"restart"}
	// The fake planner holds machines with a new generation, as after a change.
	req.Documents[0].Content = strings.Replace(yaml("one"), "lxd,", "lxd, cpus: 3,", 1)
	p, err = c.Apply(t.Context(), req)
	if err != nil || len(p.Steps) != 1 || p.Steps[0].Held != "" {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, rec := b.record(t, "one"); !slices.Equal(rec.Allow, []string{"restart"}) {
		t.Errorf("allowed: %v", rec.Allow)
	}
	before := b.store.changes()
	if _, err := c.Apply(t.Context(), req); err != nil || b.store.changes() != before {
		t.Errorf("the same again: %v, %d writes more", err, b.store.changes()-before)
	}
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); rec.Allow != nil {
		t.Errorf("still allowed after another change: %v", rec.Allow)
	}
}

func TestApplyingClearsThePowerOverride(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	if err := c.Power(t.Context(), "one", "stop"); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); rec.PowerOverride == nil || *rec.PowerOverride {
		t.Fatalf("override %v, want false", rec.PowerOverride)
	}
	faulttest.Want(t, c.Power(t.Context(), "one", "restart"), fault.Conflict, "start it")
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); rec.PowerOverride != nil {
		t.Error("the override is still there")
	}
}

// After the loss of a store recovery restores the machines but not the
// documents.
func TestMachinesOfALostDeclarationAreLeftAlone(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	for _, n := range []string{"one", "two"} {
		b.machine(n, state.Alive, lxdMachine("web"), running(n))
	}
	if p, err := c.Apply(ctx, request("other", yaml("three"))); err != nil || len(p.Removed) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if one, _ := b.record(t, "one"); one.Life != state.Alive {
		t.Fatalf("one is %s", one.Life)
	}
	p, err := c.Apply(ctx, request("web", yaml("one")))
	if _, rec := b.record(t, "two"); err != nil || len(p.Removed) != 0 || rec.Held == "" {
		t.Fatalf("%+v, two held %q, %v", p, rec.Held, err)
	}
	// A declaration that was restored from stamps belongs to the next document
	// that declares it.
	b.store.put(id(spec.KindDeclaration, "site"), state.Alive, spec.DeclarationRecord{
		Source:   spec.SourceStamps,
		Document: spec.Declaration{Version: 1, Name: "site", Machines: map[string]spec.Machine{"five": {Type: spec.LXD, Image: "debian/12"}}},
	}, nil)
	if a := b.files(t, map[string]string{"site.yaml": yaml("five")}); len(a.Refused) != 0 {
		t.Error(a.Refused)
	}
	b.machine("four", state.Alive, lxdMachine("lost"), running("four"))
	if o, err := c.Delete(ctx, []string{"declaration/lost", "declaration/never"}); err != nil || o[0].Err() != nil || !fault.Is(o[1].Err(), fault.NotFound) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestAnAgentWhosePlannerPanicsLivesOn(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.host.panics = true
	_, err := c.Apply(t.Context(), request("web", yaml("one")))
	faulttest.Want(t, err, fault.Transient, "its log says more")
	if !strings.Contains(b.log.String(), "the planner is broken") {
		t.Error("the log does not tell of the panic")
	}
	b.host.panics = false
	if _, err := c.Apply(t.Context(), request("web", yaml("one"))); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

func TestAHostThatCannotBeSeenCanBeDeclared(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	b.host.unseen = fault.New(fault.Transient, "cannot list instances: LXD does not answer")
	_, err := c.Plan(t.Context(), request("web", yaml("one")))
	faulttest.Want(t, err, fault.Transient, "LXD does not answer")
	p, err := c.Apply(t.Context(), request("web", strings.Replace(yaml("one", "three"), "one: {", "one: {cpus: 2, ", 1)))
	if err != nil || actions(p) != "machine/one update, machine/three create, machine/two delete" || !strings.Contains(p.Steps[0].Detail, "LXD does not answer") {
		t.Errorf("%+v, %v", p, err)
	}
	if two, _ := b.record(t, "two"); two.Life != state.Dying {
		t.Errorf("two is %s", two.Life)
	}
}

// A host that does not answer at all leaves an apply enough time to write (C3);
// the allowed impacts make it plan twice.
func TestAHostThatHangsCanBeDeclared(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Look = 50 * time.Millisecond })
	c := b.listen(t)
	b.host.frozen = true
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req := request("web", yaml("one"))
	req.Allow = []string{"restart"}
	p, err := c.Apply(ctx, req)
	if err != nil || actions(p) != "machine/one create" || !strings.Contains(p.Steps[0].Detail, "not known") {
		t.Fatalf("%+v, %v", p, err)
	}
	b.record(t, "one")
}

func TestChangesAreAuditedWithoutTheirBodies(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	secret := strings.Replace(yaml("one"), "debian/12}", "debian/12, cloud-init: {user-data: \"#cloud-config\\npassword: hunter2\\n\"}}", 1)
	if _, err := c.Apply(t.Context(), request("web", secret)); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Apply(t.Context(), request("web", secret+"  password: hunter2\n"))
	log := b.log.String()
	if !strings.Contains(log, `route="POST /v1/apply" uid=0 gid=0 pid=`) || strings.Contains(log, "hunter2") {
		t.Errorf("the log reads:\n%s", log)
	}
}
