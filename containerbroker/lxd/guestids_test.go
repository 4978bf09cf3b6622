package lxd

import (
	"testing"

	"github.com/canonical/lxd/shared/api"
)

// Containers without the daemon's usual ids tell nothing about the others.
func TestGuestIDs(t *testing.T) {
	instance := func(name, kind, ids string, expanded map[string]string) api.Instance {
		return api.Instance{Name: name, Type: kind, Config: map[string]string{keyIDs: ids}, ExpandedConfig: expanded}
	}
	all := []api.Instance{
		instance("web", "container", "usual", nil),
		instance("a", "container", "[]", map[string]string{keyPrivileged: "true"}),
		instance("b", "container", "isolated", map[string]string{"security.idmap.isolated": "true"}),
		instance("c", "container", "raw", map[string]string{"raw.idmap": "both 1000 1000"}),
		instance("d", "virtual-machine", "vm", nil),
		instance("e", "container", "", nil),
	}
	for want, instances := range map[string][]api.Instance{"usual": all, "": all[1:]} {
		f := newFakeLXD(t)
		f.answer("/1.0/instances", instances)
		if got, err := f.driver(nil).GuestIDs(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}
