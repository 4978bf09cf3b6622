package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/agent/workerapi"
	"hostler/internal/fault"
)

func machineID(name string) state.ID { return state.ID{Kind: spec.KindMachine, Name: name} }

// declareMachine creates a machine of a type.
func declareMachine(t testing.TB, l state.Store, name string, ct spec.ContainerType, change ...func(*spec.MachineRecord)) state.Object {
	t.Helper()
	record := spec.MachineRecord{Header: spec.Header{Declaration: "d"}, Machine: spec.Machine{Type: ct, Image: "debian/12"}}
	for _, c := range change {
		c(&record)
	}
	return statetest.Write(t, l, state.Write{ID: machineID(name), Spec: spec.Encode(record)})
}

func kindsOf(results []state.Result) []fault.Kind {
	kinds := []fault.Kind{}
	for _, r := range results {
		kinds = append(kinds, fault.KindOf(r.Err))
	}
	return kinds
}

// A1: a call takes many elements, answers in the same order and has an error
// for each; an invalid name affects its own element only.
func TestA1BulkCallsAnswerInOrderWithAnErrorEach(t *testing.T) {
	b, l := workerBench(t)
	for _, name := range []string{"a", "b", "c"} {
		declareMachine(t, l, name, spec.LXD)
	}
	s := b.worker(t, "lxd")
	c := client.New(b.socket)
	defer c.Close()
	var got workerapi.Results
	ids := []state.ID{machineID("c"), machineID("absent"), {Kind: "declaration", Name: "d"}, machineID("a"), {}, machineID("b")}
	if err := c.Call(t.Context(), http.MethodPost, "/v1/worker/lxd/get", nil, workerapi.Names{IDs: ids}, &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		name string
		kind fault.Kind
	}{{"c", ""}, {"", fault.NotFound}, {"", fault.Forbidden}, {"a", ""}, {"", fault.Forbidden}, {"b", ""}} {
		r := got.Results[i]
		if (r.Object == nil) != (want.name == "") || r.Object != nil && r.Object.Name != want.name || r.Kind != want.kind {
			t.Errorf("get %d: %+v, want %+v", i, r, want)
		}
	}
	status := spec.Encode(spec.MachineStatus{State: spec.MachinePending})
	write := func(id state.ID) state.Write {
		return state.Write{ID: id, Revision: state.AnyRevision, Status: status}
	}
	results, err := s.Write(t.Context(), state.Each,
		write(machineID("c")), write(machineID("absent")), write(state.ID{Kind: "host", Name: "host"}), write(machineID("a")), write(machineID("a")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := kindsOf(results), []fault.Kind{"", fault.NotFound, fault.Forbidden, "", ""}; !slices.Equal(got, want) {
		t.Errorf("write: %v, want %v", got, want)
	}
	if results[0].Object.Name != "c" || results[3].Object.Name != "a" {
		t.Errorf("write: %+v", results)
	}
	var begun workerapi.Results
	intents := workerapi.Intents{Intents: []state.Intent{{Token: "t1", Object: machineID("a")}, {Token: "t1", Object: machineID("b")}, {Token: "t2", Object: machineID("x")}, {Token: "t3", Object: machineID("b")}}}
	if err := c.Call(t.Context(), http.MethodPost, "/v1/worker/lxd/intents/begin", nil, intents, &begun); err != nil {
		t.Fatal(err)
	}
	for i, want := range []fault.Kind{"", fault.Conflict, fault.NotFound, ""} {
		if got := fault.KindOf(begun.Results[i].Err()); got != want {
			t.Errorf("begin %d: %q, want %q", i, got, want)
		}
	}
}

// A2: a worker sees its own type's machines. The answer for another type's
// machine equals that for an absent machine.
func TestA2OnlyOwnMachinesAreSeen(t *testing.T) {
	b, l := workerBench(t)
	declareMachine(t, l, "mine", spec.LXD)
	declareMachine(t, l, "theirs", spec.KVM)
	for _, id := range []state.ID{{Kind: "declaration", Name: "d"}, {Kind: "volume", Name: "v"}, {Kind: "type", Name: "lxd"}, {Kind: "type", Name: "kvm"}} {
		statetest.Write(t, l, state.Write{ID: id})
	}
	statetest.Write(t, l, state.Write{ID: id(spec.KindHost, spec.HostName), Spec: spec.Encode(spec.HostRecord{Recovery: spec.Recovery{Scans: []string{"lxd"}}})})
	s := b.worker(t, "lxd")
	objects, _, err := s.List(t.Context())
	names := []string{}
	for _, o := range objects {
		names = append(names, o.Kind+"/"+o.Name)
	}
	if got := fmt.Sprint(names); err != nil || got != "[host/host machine/mine type/lxd volume/v]" {
		t.Errorf("list: %s, %v", got, err)
	}
	if _, _, err := s.List(t.Context(), "machine", "declaration"); !fault.Is(err, fault.Forbidden) {
		t.Errorf("list of declarations: %v", err)
	}
	// The answer has the same bytes, whether the machine exists or not.
	answerTo := func(path string, in any) string {
		t.Helper()
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		return b.as(peer(lxdUID, 900), "POST", "/v1/worker/lxd/"+path, "application/json", string(body)).Body.String()
	}
	for _, c := range []struct {
		path string
		in   func(name string) any
	}{
		{"get", func(n string) any { return workerapi.Names{IDs: []state.ID{machineID(n)}} }},
		{"get", func(n string) any { return workerapi.Names{IDs: []state.ID{{Kind: "type", Name: n}}} }},
		{"get", func(n string) any { return workerapi.Names{IDs: []state.ID{{Kind: "volume", Name: n}}} }},
		{"write", func(n string) any {
			return workerapi.Writes{Mode: state.Each, Writes: []state.Write{{ID: machineID(n), Revision: state.AnyRevision, Delete: true}}}
		}},
		{"write", func(n string) any {
			return workerapi.Writes{Mode: state.Atomic, Writes: []state.Write{{ID: machineID(n), Revision: 3, Status: []byte(`{"state":"error"}`)}}}
		}},
		{"write", func(n string) any {
			return workerapi.Writes{Mode: state.Each, Writes: []state.Write{{ID: machineID(n), Spec: []byte(`{}`)}}}
		}},
		{"intents/begin", func(n string) any {
			return workerapi.Intents{Intents: []state.Intent{{Token: "t", Object: machineID(n)}}}
		}},
	} {
		// Names of the same length, so that the answers can be compared.
		mustWriteGone(t, l, "nobody")
		theirs := answerTo(c.path, c.in("theirs"))
		absent := answerTo(c.path, c.in("nobody"))
		if want := strings.ReplaceAll(absent, "nobody", "theirs"); theirs != want || theirs == "" {
			t.Errorf("%s: for theirs %s, for nobody %s", c.path, theirs, absent)
		}
	}
	// A worker of another type, and a worker that asks for all types, get the same
	// answer.
	for _, target := range []string{"/v1/worker/kvm/objects", "/v1/worker/all/objects", "/v1/worker/none/objects"} {
		if w := b.as(peer(lxdUID, 900), "GET", target, "", ""); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := b.as(peer(0, 0), "GET", "/v1/worker/none/objects", "", ""); w.Code != http.StatusNotFound {
		t.Errorf("an unknown type: %d", w.Code)
	}
}

func mustWriteGone(t testing.TB, l state.Store, name string) {
	t.Helper()
	if _, err := l.Get(t.Context(), machineID(name)); !fault.Is(err, fault.NotFound) {
		t.Fatalf("%s: %v", name, err)
	}
}

// A2: the worker may write its machines' statuses only.
func TestA2OnlyTheStatusIsWritten(t *testing.T) {
	b, l := workerBench(t)
	o := declareMachine(t, l, "web", spec.LXD)
	s := b.worker(t, "lxd")
	try := func(w state.Write) fault.Kind {
		t.Helper()
		w.ID = o.ID
		if w.Revision == 0 {
			w.Revision = state.AnyRevision
		}
		results, err := s.Write(t.Context(), state.Each, w)
		if err != nil {
			t.Fatal(err)
		}
		_, atomic := s.Write(t.Context(), state.Atomic, w)
		if each := fault.KindOf(results[0].Err); each != "" && each != fault.KindOf(atomic) {
			t.Errorf("%+v: %q each, %q atomic", w, each, fault.KindOf(atomic))
		}
		return fault.KindOf(results[0].Err)
	}
	status := spec.Encode(spec.MachineStatus{State: spec.MachinePending})
	for _, c := range []struct {
		w    state.Write
		want fault.Kind
	}{
		{state.Write{Spec: []byte(`{}`)}, fault.Forbidden},
		{state.Write{Spec: o.Spec, Status: status}, fault.Forbidden},
		{state.Write{Life: state.Dying}, fault.Forbidden},
		{state.Write{Life: state.Dead}, fault.Forbidden},
		{state.Write{Delete: true}, fault.Forbidden},
		{state.Write{Status: []byte(`null`)}, fault.Invalid},
		{state.Write{Status: []byte(`[1]`)}, fault.Invalid},
		{state.Write{Status: []byte(`{}`)}, fault.Invalid},
		{state.Write{Revision: 999, Status: status}, fault.Conflict},
		{state.Write{UID: "other", Status: status}, fault.Conflict},
		{state.Write{Status: status}, ""},
	} {
		if got := try(c.w); got != c.want {
			t.Errorf("%+v: %q, want %q", c.w, got, c.want)
		}
	}
	statetest.Write(t, l, state.Write{ID: o.ID, Revision: state.AnyRevision, Life: state.Dying})
	if got := try(state.Write{Life: state.Alive}); got != fault.Forbidden {
		t.Errorf("dying to alive: %q", got)
	}
	if got := try(state.Write{Life: state.Dead}); got != "" {
		t.Errorf("dying to dead: %q", got)
	}
	if _, err := s.Write(t.Context(), state.Atomic, state.Write{ID: o.ID, Revision: state.AnyRevision, UID: o.UID, Delete: true}); err != nil {
		t.Errorf("the removal of what is dead: %v", err)
	}
	if _, err := l.Get(t.Context(), o.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("it is there: %v", err)
	}
}

// A2: intents and events are restricted to the type, too.
func TestA2JournalAndEventsAreATypesOwn(t *testing.T) {
	b, l := workerBench(t)
	mine := declareMachine(t, l, "mine", spec.LXD)
	declareMachine(t, l, "theirs", spec.KVM)
	lxd, kvm := b.worker(t, "lxd"), b.worker(t, "kvm")
	if err := lxd.Begin(t.Context(), state.Intent{Token: "t1", Object: mine.ID, UID: mine.UID, Owner: "kvm"}); err != nil {
		t.Fatal(err)
	}
	if err := lxd.Begin(t.Context(), state.Intent{Token: "t2", Object: mine.ID, UID: "other"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("another uid: %v", err)
	}
	if err := kvm.Begin(t.Context(), state.Intent{Token: "t3", Object: machineID("theirs")}); err != nil {
		t.Fatal(err)
	}
	tokens := func(s *workerapi.Store) []string {
		t.Helper()
		intents, err := s.Intents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := []string{}
		for _, in := range intents {
			out = append(out, in.Token)
		}
		return out
	}
	// The owner stays known after the removal of the machine.
	statetest.Write(t, l, state.Write{ID: mine.ID, Revision: state.AnyRevision, Delete: true})
	if got := tokens(lxd); !slices.Equal(got, []string{"t1"}) {
		t.Errorf("lxd's intents: %v", got)
	}
	if err := kvm.End(t.Context(), "t1", "t3"); err != nil {
		t.Fatal(err)
	}
	if got := tokens(b.worker(t, "")); !slices.Equal(got, []string{"t1"}) {
		t.Errorf("open intents: %v", got)
	}
	if err := lxd.Record(t.Context(), state.Event{Object: machineID("theirs"), Reason: "Lie"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an event about theirs: %v", err)
	}
	if err := kvm.Record(t.Context(), state.Event{Object: machineID("theirs"), Reason: "Started"}); err != nil {
		t.Error(err)
	}
	for containerType, want := range map[string]int{"lxd": 0, "kvm": 1} {
		if events, err := b.worker(t, containerType).Events(t.Context(), state.EventQuery{}); err != nil || len(events) != want {
			t.Errorf("%s sees %+v, %v", containerType, events, err)
		}
	}
}

// Bodies that are not valid requests are refused as invalid.
func TestWorkerBodies(t *testing.T) {
	b, _ := workerBench(t)
	for _, path := range []string{"get", "write", "intents/begin", "intents/end", "events/record", "counts"} {
		for _, body := range []string{"", "{", "[]", `"x"`, `{"unknown":1}`, "null1", `{"ids":[{"kind":1}]}`, `{"a":1,"a":1}`} {
			w := b.as(peer(lxdUID, 900), "POST", "/v1/worker/lxd/"+path, "application/json", body)
			if w.Code < 400 || w.Code > 499 || w.Header().Get("Content-Type") != client.ProblemType {
				t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
			}
		}
	}
	for _, query := range []string{"events?after=x", "events?limit=-1", "events?odd=1", "objects?odd=1", "objects?kind=secret", "watch?kind=declaration"} {
		w := b.as(peer(lxdUID, 900), "GET", "/v1/worker/lxd/"+query, "", "")
		if w.Code < 400 || w.Code > 499 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// Attack: API
func TestAProvisionerSeesNoPasswordOfAProxy(t *testing.T) {
	b, l := workerBench(t)
	config := spec.DefaultConfig()
	config.Proxy = spec.ProxyConfig{HTTP: "http://me:hunter2@proxy:3128", HTTPS: "http://hunter2@proxy:3129/", No: "localhost"}
	config.Apt.Proxy = "http://me:hunter2@cache:3142"
	statetest.Write(t, l, state.Write{ID: id(spec.KindHost, spec.HostName), Spec: spec.Encode(spec.HostRecord{Config: config, Recovery: spec.Recovery{Scans: []string{"lxd"}}})})
	for _, c := range [][3]string{
		{"GET", "objects?kind=host", ""},
		{"POST", "get", `{"ids":[{"kind":"host","name":"host"}]}`},
	} {
		w := b.as(peer(lxdUID, 900), c[0], "/v1/worker/lxd/"+c[1], "application/json", c[2])
		if body := w.Body.String(); w.Code != http.StatusOK || strings.Contains(body, "hunter2") || strings.Contains(body, "me@") ||
			!strings.Contains(body, "http://proxy:3128") || !strings.Contains(body, "http://cache:3142") {
			t.Errorf("%s: %d %s", c[1], w.Code, body)
		}
	}
	// The host's own configuration keeps the password.
	if w := b.asRoot("GET", "/v1/objects/host/host", ""); !strings.Contains(w.Body.String(), "me:hunter2@proxy:3128") {
		t.Errorf("as root: %s", w.Body)
	}
}
