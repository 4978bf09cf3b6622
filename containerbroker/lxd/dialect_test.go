package lxd

import (
	"net/http"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

func incus(o *Options) { o.Dialect = Incus }

// Incus lists an instance whose init has just ended by its name alone. Its
// stamp counts all the same, and an instance that is gone is absent.
func TestInstanceWithoutStampIsReadAgain(t *testing.T) {
	listed := []api.InstanceFull{{Instance: api.Instance{Name: "web", StatusCode: api.Error}}}
	for name, c := range map[string]struct {
		read func(w http.ResponseWriter)
		want []containerbroker.Status
		kind fault.Kind
	}{
		"ending":     {func(w http.ResponseWriter) { reply(w, "sync", stamped(api.Running)) }, []containerbroker.Status{containerbroker.StatusBusy}, ""},
		"ended":      {func(w http.ResponseWriter) { reply(w, "sync", stamped(api.Stopped)) }, []containerbroker.Status{containerbroker.StatusStopped}, ""},
		"deleted":    {func(w http.ResponseWriter) { refuse(w, 404, "Instance not found") }, nil, ""},
		"unreadable": {func(w http.ResponseWriter) { refuse(w, 500, "disk I/O error") }, nil, fault.Transient},
	} {
		f := newFakeLXD(t)
		f.answer("GET /1.0/instances", listed)
		f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) { c.read(w) })
		all, err := f.driver(incus).List(t.Context(), true)
		if fault.KindOf(err) != c.kind || len(all) != len(c.want) {
			t.Errorf("%s: %+v, %v", name, all, err)
			continue
		}
		for i, status := range c.want {
			if all[i].Status != status || all[i].Stamp == nil {
				t.Errorf("%s: listed as %s with stamp %v", name, all[i].Status, all[i].Stamp)
			}
		}
	}
}

// Incus answers a wait for a failed operation with the operation's error.
func TestFailedOperationOfIncusIsRead(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("POST /1.0/instances", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "async", api.Operation{ID: "1", StatusCode: api.Running})
	})
	f.mux.HandleFunc("GET /1.0/operations/1/wait", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "Image not found") })
	f.answer("GET /1.0/operations/1", api.Operation{ID: "1", StatusCode: api.Failure, Err: "Image not found"})
	f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "Instance not found") })
	err := f.driver(incus).Create(t.Context(), testMachine(), nil)
	if err == nil || err.Error() != `cannot create instance "web": Image not found` {
		t.Error(err)
	}
	if n := f.count(http.MethodPost); n != 1 {
		t.Errorf("%d posts", n)
	}
}

// Incus may refuse a wait at once while the operation runs. The driver then
// asks again at intervals.
func TestRefusedWaitIsRepeatedAtIntervals(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("GET /1.0/operations/1/wait", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "database is locked") })
	f.answer("GET /1.0/operations/1", api.Operation{ID: "1", StatusCode: api.Running})
	d := f.driver(func(o *Options) { o.Dialect, o.OperationTimeout = Incus, 5*waitAgain/2 })
	_, err := d.wait(d.open(t.Context(), 0), api.Operation{ID: "1"})
	if !fault.Is(err, fault.Transient) {
		t.Error(err)
	}
	if n := f.count(http.MethodGet); n < 2 || n > 8 {
		t.Errorf("%d requests", n)
	}
}

// Incus answers a request for the state of an instance that is starting or
// stopping as if its init had just ended. So the driver reads the state only of
// an instance that runs.
func TestInstanceThatStopsIsSettled(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("recursion") != "" {
			refuse(w, 500, "Invalid PID -1")
			return
		}
		reply(w, "sync", stamped(api.Stopping))
	})
	d := f.driver(incus)
	found, err := d.settled(d.open(t.Context(), 0), "web")
	if err != nil || found.StatusCode != api.Stopping || f.count(http.MethodGet) != 1 {
		t.Errorf("%s after %d requests, %v", found.StatusCode, f.count(http.MethodGet), err)
	}
}
