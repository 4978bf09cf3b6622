package lxd

import (
	"net/url"

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
