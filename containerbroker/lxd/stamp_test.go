package lxd

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// P28: the request that changes a stamp checks the stamp that the caller saw:
// if another agent stamps the instance in between, that stamp stays.
func TestP28StampThatChangesMeanwhileStays(t *testing.T) {
	ours := testMachine().Stamp
	changes := map[string]func(*Driver) error{
		"stamp": func(d *Driver) error {
			again := ours
			again.Token = "again"
			return d.Stamp(t.Context(), "web", &ours, again)
		},
		"unstamp": func(d *Driver) error { return d.Unstamp(t.Context(), "web", ours) },
	}
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			f := newFakeLXD(t)
			is, version := stamped(api.Running), 1
			theirs := containerbroker.Stamp{Namespace: "second", UID: "theirs", Token: "theirs"}
			f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", fmt.Sprint(version))
				reply(w, "sync", is)
				if version == 1 { // the other agent is faster
					is.Config, version = stampConfig(theirs), 2
				}
			})
			f.mux.HandleFunc("PUT /1.0/instances/web", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("If-Match") != fmt.Sprint(version) {
					refuse(w, http.StatusPreconditionFailed, "Precondition failed")
					return
				}
				t.Error("a stamp was overwritten")
				reply(w, "async", api.Operation{ID: "1"})
			})
			f.answer("GET /1.0/operations/1/wait", api.Operation{ID: "1", StatusCode: api.Success})
			if err := change(f.driver(nil)); !fault.Is(err, fault.Conflict) {
				t.Errorf("error %v", err)
			}
			if f.count(http.MethodPut) != 1 || !maps.Equal(is.Config, stampConfig(theirs)) {
				t.Errorf("%d changes, it bears %v", f.count(http.MethodPut), is.Config)
			}
		})
	}
}

// P33: an instance that was never started, e.g. restored from a backup, lacks
// the marks that distinguish a whole instance from an interrupted create.
// Adopted, it counts as whole; released, it keeps nothing of hostler's.
func TestP33AdoptedInstanceIsWhole(t *testing.T) {
	f := newFakeLXD(t)
	d := f.driver(nil)
	i := api.Instance{Name: "web", StatusCode: api.Stopped, Config: map[string]string{keyBaseImage: "abc"}}
	before := maps.Clone(i.Config)
	f.instance(&i)
	stamp := testMachine().Stamp
	succeeds(t, d.Stamp(t.Context(), "web", nil, stamp))
	if got := instanceOf(api.InstanceFull{Instance: i}); got.Status != containerbroker.StatusStopped {
		t.Errorf("it is %s", got.Status)
	}
	succeeds(t, d.Unstamp(t.Context(), "web", stamp))
	if !maps.Equal(i.Config, before) {
		t.Errorf("let go it bears %v", i.Config)
	}
}
