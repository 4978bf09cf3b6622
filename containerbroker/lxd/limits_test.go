package lxd

import (
	"net/http"
	"testing"

	"github.com/canonical/lxd/shared/api"
)

// A root disk in a pool without limits is listed without a limit, for any
// declared size; LXD is asked about the pool only once.
func TestRootDiskInAPoolWithoutLimits(t *testing.T) {
	for driver, limited := range map[string]bool{"dir": false, "btrfs": true} {
		f := newFakeLXD(t)
		one := stamped(api.Running)
		one.Config["volatile.last_state.power"] = "RUNNING"
		one.ExpandedDevices = devices{"root": {"type": "disk", "path": "/", "pool": "default", "size": "1GiB"}}
		f.answer("/1.0/instances", []api.Instance{one})
		f.answer("/1.0/storage-pools/default", api.StoragePool{Name: "default", Driver: driver})
		d := f.driver(nil)
		for range 2 {
			all, err := d.List(t.Context(), false)
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			if i := all[0]; i.RootUnlimited == limited || (i.RootDisk == 1<<30) != limited {
				t.Errorf("%s: %+v", driver, i)
			}
		}
		if n := f.count(http.MethodGet); n != 3 {
			t.Errorf("%s: %d requests", driver, n)
		}
	}
}
