package lxd

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
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

// A limit below the memory that a running guest uses is refused, because the kernel would
// kill processes of the guest. The other changes are made. The caches of the guest do not
// count, because the kernel frees them.
func TestLowerMemoryThanUsed(t *testing.T) {
	cgroups := func(dir, stat string) string {
		t.Helper()
		all := t.TempDir()
		dir = filepath.Join(all, dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		return all
	}
	v2 := cgroups("lxc.payload.web", "anon 5000\nactive_file 200\ninactive_file 700\nslab_reclaimable 100\nslab 300\n")
	v1 := cgroups("memory/lxc.payload.web", "cache 5000\nactive_file 2\ninactive_file 7\ntotal_active_file 300\ntotal_inactive_file 700\n")
	changes := []containerbroker.Change{{Field: containerbroker.FieldCPUs}, {Field: containerbroker.FieldMemory}}
	for what, c := range map[string]struct {
		status  api.StatusCode
		usage   int64
		cgroups string
		refused bool
	}{
		"more":                   {api.Running, 5097, v2, true},
		"more while frozen":      {api.Frozen, 5097, v2, true},
		"more but for caches":    {api.Running, 5096, v2, false},
		"stopped":                {api.Stopped, 5097, v2, false},
		"cgroup v1":              {api.Running, 5097, v1, true},
		"cgroup v1, caches":      {api.Running, 5096, v1, false},
		"a cgroup unknown":       {api.Running, 4097, t.TempDir(), true},
		"a cgroup unknown, less": {api.Running, 4096, t.TempDir(), false},
	} {
		f := newFakeLXD(t)
		f.answer("GET /1.0/instances/web", stamped(c.status))
		f.answer("GET /1.0/instances/web/state", api.InstanceState{Memory: api.InstanceStateMemory{Usage: c.usage}})
		f.answer("GET /1.0/operations/op/wait", api.Operation{ID: "op", StatusCode: api.Success})
		var put api.InstancePut
		f.mux.HandleFunc("PUT /1.0/instances/web", func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewDecoder(r.Body).Decode(&put)
			reply(w, "async", api.Operation{ID: "op", StatusCode: api.Running})
		})
		m := testMachine()
		m.CPUs, m.Memory = 2, 4096
		err := f.driver(func(o *Options) { o.Cgroup = c.cgroups }).Update(t.Context(), m, changes)
		want := "4096"
		if c.refused {
			want = ""
		}
		if fault.Is(err, fault.Transient) != c.refused || !c.refused && err != nil || put.Config[keyMemory] != want || put.Config[keyCPUs] != "2" {
			t.Errorf("%s: %v, LXD gets %v", what, err, put.Config)
		}
	}
}
