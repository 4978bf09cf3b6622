package api

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

func TestDeleteAnswersEachElementInOrder(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	if _, err := c.Apply(ctx, request("web", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	asked := []string{"machine/absent", "machine/one", "nonsense", "network/lan", "declaration/absent", "machine/one", "image/x"}
	got, err := c.Delete(ctx, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := []fault.Kind{fault.NotFound, "", fault.Invalid, fault.NotFound, fault.NotFound, "", fault.Invalid}
	for i, o := range got {
		if o.Object != asked[i] || fault.KindOf(o.Err()) != want[i] {
			t.Errorf("element %d: %+v, want %s of kind %q", i, o, asked[i], want[i])
		}
	}
	one, _ := b.record(t, "one")
	if one.Life != state.Dying {
		t.Errorf("one is %s", one.Life)
	}
	d, err := c.Declarations(ctx)
	if err != nil || len(d) != 1 || !slices.Equal(d[0].Objects, []string{"machine/two"}) {
		t.Errorf("declarations %+v, %v", d, err)
	}
	// The declaration is removed with its last object.
	if _, err := c.Delete(ctx, []string{"machine/two"}); err != nil || len(b.store.names(spec.KindDeclaration)) != 0 {
		t.Errorf("declarations %v, %v", b.store.names(spec.KindDeclaration), err)
	}
	if _, rec := b.record(t, "two"); rec.Declaration != "web" {
		t.Errorf("the dying machine is of %q", rec.Declaration)
	}
}

func TestDeletingADeclarationRemovesAllOfIt(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	before := b.store.changes()
	o, err := c.Delete(t.Context(), []string{"declaration/web", "machine/two"})
	if err != nil || o[0].Err() != nil || o[1].Err() != nil || b.store.changes() != before+1 {
		t.Fatalf("%+v, %v, %d writes", o, err, b.store.changes()-before)
	}
	for _, n := range []string{"one", "two"} {
		if m, _ := b.record(t, n); m.Life != state.Dying {
			t.Errorf("%s is %s", n, m.Life)
		}
	}
}

func TestReleaseLetsTheInstanceLive(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	if _, err := c.Apply(ctx, request("web", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second release is success
		if err := c.Release(ctx, "one"); err != nil {
			t.Fatal(err)
		}
	}
	if o, rec := b.record(t, "one"); o.Life != state.Dying || !rec.Released {
		t.Errorf("one is %s, released %v", o.Life, rec.Released)
	}
	faulttest.Want(t, c.Release(ctx, "absent"), fault.NotFound)
	if _, err := c.Delete(ctx, []string{"machine/two"}); err != nil {
		t.Fatal(err)
	}
	faulttest.Want(t, c.Release(ctx, "two"), fault.NotReady)
}

func TestPowerAndRetry(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	b.machine("one", state.Alive, lxdMachine("web"), running("one"))
	b.machine("dying", state.Dying, lxdMachine("web"), running("dying"))
	b.store.put(id(spec.KindContainerType, "lxd"), state.Alive, nil, spec.TypeStatus{State: "error", Message: "no space"})
	for _, step := range []struct {
		err  error
		kind fault.Kind
	}{
		{c.Power(ctx, "one", "restart"), ""},
		{c.Power(ctx, "one", "restart"), ""},
		{c.Power(ctx, "one", "start"), ""},
		{c.Power(ctx, "one", "fly"), fault.Invalid},
		{c.Power(ctx, "absent", "start"), fault.NotFound},
		{c.Power(ctx, "dying", "start"), fault.NotReady},
		{c.Retry(ctx, "machine/one", false), ""},
		{c.Retry(ctx, "machine/dying", false), ""},
		{c.Retry(ctx, "machine/absent", false), fault.NotFound},
		{c.Retry(ctx, "type/lxd", false), ""},
		{c.Retry(ctx, "type/kvm", false), fault.NotFound},
		{c.Retry(ctx, "declaration/web", false), fault.Invalid},
		{c.Retry(ctx, "one", false), fault.Invalid},
	} {
		if fault.KindOf(step.err) != step.kind {
			t.Errorf("%v of kind %q, want %q", step.err, fault.KindOf(step.err), step.kind)
		}
	}
	if _, rec := b.record(t, "one"); rec.RestartRequest != 2 || rec.RetryRequest != 1 || rec.PowerOverride != nil {
		t.Errorf("record %+v", rec)
	}
	o, err := b.store.Get(ctx, id(spec.KindContainerType, "lxd"))
	if err != nil || string(o.Spec) != `{"retry-request":1}` || !strings.Contains(string(o.Status), "no space") {
		t.Errorf("type: %s %s, %v", o.Spec, o.Status, err)
	}
}

func TestAdoptDeclaresFirstAndStampsThen(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	b.host.instances["stray"], b.host.instances["one"], b.host.instances["theirs"] = "", "", "somebody"
	m, err := c.Adopt(ctx, "lxd", "stray")
	if _, rec := b.record(t, "stray"); err != nil || m.Name != "stray" || !rec.Adopted || m.Declaration != "stray" || b.host.instances["stray"] != m.UID {
		t.Fatalf("%+v, %v, stamp %q", m, err, b.host.instances["stray"])
	}
	if again, err := c.Adopt(ctx, "lxd", "stray"); err != nil || again.UID != m.UID {
		t.Errorf("again: %+v, %v", again, err)
	}
	// A declared machine takes the foreign instance that was in its way.
	if _, err := c.Apply(ctx, request("web", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	changed := request("web", strings.Replace(yaml("one"), "debian/12", "debian/12, cpus: 2", 1))
	changed.Allow = []string{"recreate"}
	if _, err := c.Apply(ctx, changed); err != nil {
		t.Fatal(err)
	}
	if _, rec := b.record(t, "one"); len(rec.Allow) != 1 {
		t.Fatalf("%+v", rec)
	}
	one, err := c.Adopt(ctx, "lxd", "one")
	if _, rec := b.record(t, "one"); err != nil || one.Declaration != "web" || one.Image != "debian/12" || rec.RetryRequest != 1 || len(rec.Allow) != 0 {
		t.Errorf("%+v, %v, %+v", one, err, rec)
	}
	// An instance that hostler created does not become adopted.
	b.machine("ours", state.Alive, lxdMachine("web2"), running("ours"))
	b.host.instances["ours"] = ""
	if _, err := c.Adopt(ctx, "lxd", "ours"); err != nil {
		t.Error(err)
	}
	if _, rec := b.record(t, "ours"); rec.Adopted {
		t.Error("our own instance counts as adopted")
	}
	// The instance of a renamed machine has the machine's former name.
	renamed := lxdMachine("web3")
	renamed.InstanceName = "web"
	b.machine("www", state.Alive, renamed, spec.MachineStatus{State: spec.MachinePending})
	b.host.instances["web"] = ""
	www, err := c.Adopt(ctx, "lxd", "web")
	if _, rec := b.record(t, "www"); err != nil || www.Name != "www" || !rec.Adopted || b.host.instances["web"] != www.UID {
		t.Errorf("of a renamed machine: %+v, %v, stamp %q", www, err, b.host.instances["web"])
	}
	_, err = c.Adopt(ctx, "lxd", "absent")
	faulttest.Want(t, err, fault.NotFound)
	_, err = c.Adopt(ctx, "vmware", "stray")
	faulttest.Want(t, err, fault.Invalid)
	_, err = c.Adopt(ctx, "lxd", "theirs")
	faulttest.Want(t, err, fault.Conflict, "another stamp")
}

// With a hundred writers at once no request is lost and none is counted twice.
func TestConcurrentWriters(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	var docs []client.Document
	for i := range 10 {
		docs = append(docs, client.Document{Name: fmt.Sprintf("d%d", i), Content: yaml(fmt.Sprintf("m%d", i))})
	}
	if _, err := c.Apply(ctx, client.ApplyRequest{Documents: docs}); err != nil {
		t.Fatal(err)
	}
	// Status writes continue at the same time, like those of a provisioner.
	stop := make(chan struct{})
	var status sync.WaitGroup
	status.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_, _ = b.store.Write(ctx, state.Each, state.Write{
					ID:       id(spec.KindMachine, fmt.Sprintf("m%d", i%10)),
					Revision: state.AnyRevision, Status: spec.Encode(spec.MachineStatus{Deaths: i}),
				})
			}
		}
	})
	var writers sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 100 {
		writers.Go(func() {
			name := fmt.Sprintf("m%d", i%10)
			switch i / 10 % 3 {
			case 0:
				errs <- c.Power(ctx, name, "restart")
			case 1:
				errs <- c.Retry(ctx, "machine/"+name, false)
			default:
				_, err := c.Apply(ctx, client.ApplyRequest{Documents: docs[i%10 : i%10+1]})
				errs <- err
			}
		})
	}
	writers.Wait()
	close(stop)
	status.Wait()
	for range 100 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i := range 10 {
		if _, rec := b.record(t, fmt.Sprintf("m%d", i)); rec.RestartRequest != 4 || rec.RetryRequest != 3 {
			t.Errorf("m%d: %d restarts, %d retries, want 4 and 3", i, rec.RestartRequest, rec.RetryRequest)
		}
	}
}

func TestAChangeDoesNotWaitForEver(t *testing.T) {
	b := newBench(t)
	b.machine("one", state.Alive, lxdMachine("web"), running("one"))
	b.declaring <- struct{}{} // another change does not end
	if w := b.asRoot("POST", "/v1/machines/one/power", `{"action":"stop"}`); w.Code != 503 || !strings.Contains(w.Body.String(), "another change is still being made") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	<-b.declaring
	if w := b.asRoot("POST", "/v1/machines/one/power", `{"action":"stop"}`); w.Code != 204 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
