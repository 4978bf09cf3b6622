package lxd

import (
	"net/url"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// markUnlimited marks the root disks whose size their pool ignores: a pool of
// driver dir accepts a size without an error and limits nothing. It asks LXD
// for each pool only once, for the first instance that uses it.
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
