package lxd

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"hostler/containerbroker"
)

// instance serves a single instance that can be changed.
func (f *fakeLXD) instance(i *api.Instance) {
	f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) { reply(w, "sync", i) })
	f.mux.HandleFunc("PUT /1.0/instances/web", func(w http.ResponseWriter, r *http.Request) {
		var put api.InstancePut
		if err := json.NewDecoder(r.Body).Decode(&put); err != nil {
			refuse(w, 400, err.Error())
			return
		}
		i.Config, i.Devices, i.ExpandedDevices = put.Config, put.Devices, put.Devices
		reply(w, "async", api.Operation{ID: "1"})
	})
	f.answer("GET /1.0/operations/1/wait", api.Operation{ID: "1", StatusCode: api.Success})
}

// P28: the devices of a released instance are its own. An adoption takes none
// of them, and devices that a machine declares again are hostler's again. None
// of this changes a device, since LXD would unplug it for a moment.
func TestP28DevicesLeftAreKept(t *testing.T) {
	own := attached(t, New(Options{}), devices{"theirs": {"type": "disk", "source": "/theirs", "path": "/theirs"}}, wiredMachine(), nil)
	adopted := testMachine()
	adopted.KeepGuest, adopted.Stamp.UID, adopted.Stamp.Token = true, "another", "another"
	for what, released := range map[string]bool{"released": true, "left with its stamp": false} {
		t.Run(what, func(t *testing.T) {
			f := newFakeLXD(t)
			d := f.driver(nil)
			i := stamped(api.Running)
			i.Devices, i.ExpandedDevices = own, own
			i.Config["volatile.eth0.host_name"] = "veth1"
			f.instance(&i)
			diff := func(m containerbroker.Machine) []containerbroker.Change {
				return d.Diff(m, instanceOf(api.InstanceFull{Instance: i}))
			}
			seen := stampOf(i.Config)
			if released {
				succeeds(t, d.Unstamp(t.Context(), "web", *seen))
				seen = nil
			}
			for range 2 {
				succeeds(t, d.Stamp(t.Context(), "web", seen, adopted.Stamp))
			}
			if changes := diff(adopted); len(changes) != 0 {
				t.Errorf("taken over it would lose %+v", changes)
			}
			if ports := instanceOf(api.InstanceFull{Instance: i}).Ports; ports != nil {
				t.Errorf("its ports are moved: %v", ports)
			}
			wired := wiredMachine()
			wired.KeepGuest, wired.Stamp, wired.Disks = true, adopted.Stamp, wired.Disks[:1]
			changes := diff(wired)
			if len(changes) != 2 || changes[0].Field != "disk fs-www" || changes[1].Field != "nic eth0" {
				t.Errorf("declared again: %+v", changes)
			}
			succeeds(t, d.Update(t.Context(), wired, changes))
			if changes := diff(wired); len(changes) != 0 {
				t.Errorf("declared again, still: %+v", changes)
			}
			if diff := cmp.Diff(own, devices(i.Devices)); diff != "" {
				t.Errorf("a device was changed: %s", diff)
			}
			// Devices declared again go with their declaration; the rest stay.
			changes = diff(adopted)
			succeeds(t, d.Update(t.Context(), adopted, changes))
			if len(i.Devices) != 2 || i.Devices["vol-data"] == nil || i.Devices["theirs"] == nil {
				t.Errorf("declared no more it has %v after %+v", i.Devices, changes)
			}
			succeeds(t, d.Unstamp(t.Context(), "web", adopted.Stamp))
			if _, there := i.Config[keyInstanceDevices]; there {
				t.Errorf("let go it bears %v", i.Config)
			}
		})
	}
	// Stamped again for the same machine, the instance keeps the machine's
	// devices.
	f := newFakeLXD(t)
	i := stamped(api.Running)
	i.Devices = own
	f.instance(&i)
	again := testMachine().Stamp
	again.Token = "again"
	succeeds(t, f.driver(nil).Stamp(t.Context(), "web", stampOf(i.Config), again))
	if _, there := i.Config[keyInstanceDevices]; there || i.Config[keyToken] != "again" {
		t.Errorf("stamped again: %v", i.Config)
	}
}

func succeeds(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
