package storageprovisioner

import (
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Data that another program removed, and that only a device or a mount still has,
// stays there until its removal is declared.
func TestRemovedDataStaysAttached(t *testing.T) {
	for name, c := range map[string]struct {
		retain bool
		life   state.Life
		want   string
	}{
		"its machine is gone": {false, state.Alive, ""},
		"it is retained":      {true, state.Dying, ""},
		"it is removed":       {false, state.Dying, "detach volume/data, destroy volume/data, detach filesystem/logs, destroy filesystem/logs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.volume("data", spec.Volume{Retain: c.retain})
			r.filesystem("logs", spec.Filesystem{Provider: "rootfs", Retain: c.retain})
			r.machine("web", spec.Attachment{Volume: "data"}, spec.Attachment{Filesystem: "logs", Path: "/log"})
			r.settle()
			r.instance("web")
			r.settle()
			const problem = "it was removed"
			v, f := r.host.volumes["data"], r.host.filesystems["logs"]
			v.Problem, v.Unlinked, f.Problem, f.Unlinked = problem, true, problem, true
			r.gone("web")
			r.life(spec.KindVolume, "data", c.life)
			r.life(spec.KindFilesystem, "logs", c.life)
			calls := len(r.host.did())
			r.settle()
			did := slices.DeleteFunc(r.host.did()[calls:], func(call string) bool { return strings.HasPrefix(call, "hide ") })
			equal(t, strings.Join(did, ", "), c.want)
			if c.want != "" {
				return
			}
			for _, s := range []spec.StorageStatus{r.status(spec.KindVolume, "data"), r.status(spec.KindFilesystem, "logs")} {
				if s.Message != problem {
					t.Errorf("it says %+v", s)
				}
			}
		})
	}
}
