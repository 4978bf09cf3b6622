package lxd

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// markUnlimited marks the instances whose pool ignores the size of the root
// disk. Pools of the driver dir accept a size without an error and limit
// nothing. It asks LXD only once for each pool.
func (d *Driver) markUnlimited(c *client, all []containerbroker.Instance) error {
	for n := range all {
		i := &all[n]
		if i.Stamp == nil || i.RootDisk == 0 || i.Stored.Pool == "" {
			continue
		}
		limitless, asked := d.limitless.Load(i.Stored.Pool)
		if !asked {
			var pool api.StoragePool
			_, err := c.get("/1.0/storage-pools/"+url.PathEscape(i.Stored.Pool), &pool)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			limitless = pool.Driver == "dir"
			d.limitless.Store(i.Stored.Pool, limitless)
		}
		if limitless == true {
			i.RootDisk, i.RootUnlimited = 0, true
		}
	}
	return nil
}

// refuseMemory returns the changes without that of the memory, and a transient error, if
// the running guest uses more than limit, in bytes. LXD sets a limit without a look at
// its use. On cgroup v2 the kernel then kills processes of the guest.
func (d *Driver) refuseMemory(c *client, found api.Instance, changes []containerbroker.Change, limit int64) (left []containerbroker.Change, refused, err error) {
	isMemory := func(c containerbroker.Change) bool { return c.Field == containerbroker.FieldMemory }
	if limit <= 0 || statusOf(found.StatusCode) == containerbroker.StatusStopped || !slices.ContainsFunc(changes, isMemory) {
		return changes, nil, nil
	}
	var now api.InstanceState
	if _, err := c.get(instancePath(found.Name)+"/state", &now); err != nil {
		return nil, nil, err
	}
	if now.Memory.Usage-d.caches(found.Name) <= limit {
		return changes, nil, nil
	}
	return slices.DeleteFunc(slices.Clone(changes), isMemory), fault.New(fault.Transient,
		"the guest uses more memory than that: let it use less, or restart the machine"), nil
}

// caches returns the size of a guest's caches in bytes, which the kernel frees under a
// lower limit. It returns 0 if the guest's cgroup has not the name that liblxc prefers.
func (d *Driver) caches(name string) int64 {
	stat, err := os.ReadFile(filepath.Join(d.opts.Cgroup, "lxc.payload."+name, "memory.stat"))
	prefix := ""
	if err != nil { // cgroup v1, where the plain values leave out the cgroups below
		stat, _ = os.ReadFile(filepath.Join(d.opts.Cgroup, "memory", "lxc.payload."+name, "memory.stat"))
		prefix = "total_"
	}
	size := int64(0)
	for line := range strings.Lines(string(stat)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains([]string{prefix + "active_file", prefix + "inactive_file", prefix + "slab_reclaimable"}, key) {
			n, _ := strconv.ParseInt(value, 10, 64)
			size += n
		}
	}
	return size
}
