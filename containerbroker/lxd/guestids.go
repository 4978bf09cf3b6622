package lxd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"
)

// keyIDs holds the ids of the host that an instance gets at its next start, as
// package storage/idmap reads them.
const keyIDs = "volatile.idmap.next"

// GuestIDs returns the recorded id map of an unprivileged container with the
// daemon's usual ids, or "" if there is no such container. A container with
// ids of its own, by security.idmap.* or raw.idmap, is passed over.
func (d *Driver) GuestIDs(ctx context.Context) (string, error) {
	ctx, stop := d.whileAlive(ctx)
	defer stop()
	var found []api.Instance
	c := d.open(ctx, d.opts.RequestTimeout)
	if _, err := c.get("/1.0/instances?recursion=1", &found); err != nil {
		return "", fmt.Errorf("cannot list %s instances: %w", c.dialect.Name, err)
	}
	slices.SortFunc(found, func(a, b api.Instance) int { return strings.Compare(a.Name, b.Name) })
	for _, i := range found {
		if usualIDs(i) {
			return i.Config[keyIDs], nil
		}
	}
	return "", nil
}

func usualIDs(i api.Instance) bool {
	if i.Config[keyIDs] == "" || i.Type == string(api.InstanceTypeVM) {
		return false
	}
	for key, value := range i.ExpandedConfig {
		switch {
		case key == keyPrivileged && isTrue(value), strings.HasPrefix(key, "security.idmap.") && value != "", key == "raw.idmap" && value != "":
			return false
		}
	}
	return true
}
