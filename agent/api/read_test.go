package api

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

func TestMachineRows(t *testing.T) {
	next := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		life   state.Life
		status spec.MachineStatus
		want   spec.MachineState
	}{
		"new":           {state.Alive, spec.MachineStatus{}, spec.MachinePending},
		"running":       {state.Alive, spec.MachineStatus{State: spec.MachineRunning}, spec.MachineRunning},
		"error":         {state.Alive, spec.MachineStatus{State: spec.MachineError}, spec.MachineError},
		"going":         {state.Dying, spec.MachineStatus{State: spec.MachineRunning}, spec.MachineDying},
		"new and going": {state.Dying, spec.MachineStatus{}, spec.MachineDying},
		"cannot go":     {state.Dying, spec.MachineStatus{State: spec.MachineError}, spec.MachineError},
		"not asked":     {state.Dying, spec.MachineStatus{State: spec.MachineUnknown}, spec.MachineUnknown},
	} {
		o := state.Object{ID: id(spec.KindMachine, "m"), Life: tc.life, Generation: 3, Spec: spec.Encode(lxdMachine("d")), Status: spec.Encode(tc.status)}
		row, err := machineRow(o)
		if err != nil || row.Status != tc.want || row.Observed {
			t.Errorf("%s: %+v, %v, want %s", name, row, err, tc.want)
		}
	}
	o := state.Object{
		ID: id(spec.KindMachine, "m"), UID: "u", Life: state.Alive, Generation: 3, Spec: spec.Encode(lxdMachine("d")),
		Status: spec.Encode(spec.MachineStatus{
			State: spec.MachineError, Message: "no image", ObservedGeneration: 3,
			Instance: &spec.InstanceInfo{Name: "m"}, Attempts: spec.Attempts{Count: 4, NextRetry: &next},
		}),
	}
	row, err := machineRow(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"m","type":"lxd","life":"alive","status":"error","message":"no image","image":"debian/12","instance":"m",` +
		`"addresses":[],"created":null,"attempts":4,"next-retry":"2030-01-02T03:04:05Z","declaration":"d","uid":"u","generation":3,"observed":true,"conditions":[]}`
	if string(b) != want {
		t.Errorf("row\n%s\nwant\n%s", b, want)
	}
}

func TestReads(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	b.machine("two", state.Alive, lxdMachine("web"), running("two"))
	b.machine("one", state.Dying, lxdMachine("web"), spec.MachineStatus{})
	b.store.put(id(spec.KindContainerType, "lxd"), state.Alive, nil, spec.TypeStatus{State: "ready"})
	b.host.notices = []string{"the store was rebuilt"}
	b.host.logs["two"] = "booted\n"
	for i := range 3 {
		_ = b.store.Record(ctx, state.Event{Object: id(spec.KindMachine, []string{"one", "two", "one"}[i]), Level: state.LevelInfo, Reason: "Created", Message: "made"})
	}
	rows, err := c.Machines(ctx)
	if err != nil || len(rows) != 2 || rows[0].Name != "one" {
		t.Errorf("machines: %+v, %v", rows, err)
	}
	rows, err = c.Machines(ctx, "two", "one")
	if err != nil || len(rows) != 2 || rows[0].Name != "two" || !slices.Equal(rows[0].Addresses, []string{"10.0.0.2"}) {
		t.Errorf("two, one: %+v, %v", rows, err)
	}
	_, err = c.Machines(ctx, "one", "absent")
	faulttest.Want(t, err, fault.NotFound, "machine/absent")
	for _, kind := range []string{"volumes", "filesystems", "networks", "declarations", "images", "images/available"} {
		if raw, err := c.Get(ctx, kind); err != nil || strings.TrimSpace(string(raw)) != "[]" {
			t.Errorf("%s: %s, %v", kind, raw, err)
		}
	}
	_, err = c.Get(ctx, "unicorns")
	faulttest.Want(t, err, fault.NotFound)
	o, err := c.Show(ctx, "machine", "one")
	if err != nil || o.Life != "dying" || len(o.Events) != 2 || o.Events[0].Object != "machine/one" {
		t.Errorf("show: %+v, %v", o, err)
	}
	_, err = c.Show(ctx, "machine", "absent")
	faulttest.Want(t, err, fault.NotFound, "machine/absent")
	s, err := c.Status(ctx)
	if err != nil || s.Version != "1.2.3" || s.Harvest != "destroyed" || s.Machines["dying"] != 1 || s.Machines["running"] != 1 ||
		len(s.Types) != 4 || s.Types[0].State != "ready" || s.Types[1].State != "absent" || s.Notices[0] != "the store was rebuilt" || s.Locks == nil {
		t.Errorf("status: %+v, %v", s, err)
	}
	events, err := c.Events(ctx, 1, "machine/one", 0)
	if err != nil || len(events) != 1 || events[0].Seq != 3 {
		t.Errorf("events: %+v, %v", events, err)
	}
	if events, err = c.Events(ctx, 0, "machine", 2); err != nil || len(events) != 2 {
		t.Errorf("events of a kind: %+v, %v", events, err)
	}
	if checks, err := c.Doctor(ctx); err != nil || len(checks) != 1 {
		t.Errorf("doctor: %+v, %v", checks, err)
	}
	if v, err := c.Version(ctx); err != nil || v.Version != "1.2.3" || v.Namespace != "test" {
		t.Errorf("version: %+v, %v", v, err)
	}
	b.host.notices = []string{"kvm, say, is down", "so is lxd: “no”"}
	if y, missing, err := c.Export(ctx, ""); err != nil || !strings.HasPrefix(string(y), "version: 1") || !slices.Equal(missing, b.host.notices) {
		t.Errorf("export: %s without %q, %v", y, missing, err)
	}
}

func TestHarvestIsOverriddenAndGivenBack(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	// The mode can be set although a record cannot be read.
	statetest.Write(t, b.store, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: "broken"}, Spec: []byte(`{"machine":5}`)})
	for _, mode := range []string{"all", "none", ""} {
		h, err := c.SetHarvest(ctx, mode)
		want := mode
		if want == "" {
			want = "destroyed"
		}
		if err != nil || h.Mode != want || h.Configured != "destroyed" || h.Override != mode {
			t.Errorf("%q: %+v, %v", mode, h, err)
		}
	}
	_, err := c.SetHarvest(ctx, "everything")
	faulttest.Want(t, err, fault.Invalid)
	if h, err := c.Harvest(ctx); err != nil || h.Mode != "destroyed" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestAStoreThatFailsIsTransient(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.store.mu.Lock()
	b.store.fail = errors.New("cannot read the store: disk I/O error")
	b.store.mu.Unlock()
	_, err := c.Machines(t.Context())
	faulttest.Want(t, err, fault.Transient, "disk I/O error")
	_, err = c.Apply(t.Context(), request("web", yaml("one")))
	faulttest.Want(t, err, fault.Transient, "disk I/O error")
}

// The image of a machine is its instance's image, even if another image is
// declared.
func TestImageThatRuns(t *testing.T) {
	b := newBench(t)
	rec := lxdMachine("web")
	rec.Machine.Image = "debian/13"
	st := running("web")
	st.Instance.Image = "debian/12"
	b.machine("web", state.Alive, rec, st)
	rows, err := b.listen(t).Machines(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Image != "debian/12" {
		t.Errorf("%+v, %v", rows, err)
	}
}

// show lists the newest events of an object that has more than a page of them,
// without those of a former object with its name. It does not read all of them.
func TestShowHasTheNewestEvents(t *testing.T) {
	b := newBench(t)
	b.machine("web", state.Alive, lxdMachine("web"), running("web"))
	o, _ := b.record(t, "web")
	for n := range 1200 {
		if err := b.store.Record(t.Context(), state.Event{Object: o.ID, UID: o.UID, Message: strconv.Itoa(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.store.Record(t.Context(), state.Event{Object: o.ID, UID: "former", Message: "former"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.store.eventsRead = 0
		last, err := b.lastEvents(t.Context(), o)
		if err != nil || len(last) != shownEvents || last[0].Message != "1150" || last[shownEvents-1].Message != "1199" {
			t.Errorf("%d events: %+v, %v", len(last), last, err)
		}
		if b.store.eventsRead > 400 {
			t.Errorf("it read %d events", b.store.eventsRead)
		}
		for range 3 * shownEvents { // more than a page of a former object's
			if err := b.store.Record(t.Context(), state.Event{Object: o.ID, UID: "former", Message: "former"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A copied store becomes the present host's store, and the status says so until then.
// Once more changes nothing.
func TestACopiedHostIsAdopted(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	host := reconcile.Host{Store: b.store}
	if err := host.Update(t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) {
		r.Harvest, r.Recovery.Machine, r.Recovery.CopiedTo = "none", "one", "two"
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the store was made on a host with another machine-id", ""} {
		if st, err := c.Status(t.Context()); err != nil || st.Copied != want {
			t.Errorf("the status says %q, %v, want %q", st.Copied, err, want)
		}
		if err := c.AdoptHost(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, _, _, err := host.Read(t.Context())
		if err != nil || r.Recovery.Machine != "two" || r.Recovery.CopiedTo != "" || r.Harvest != "none" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
