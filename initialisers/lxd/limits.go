package lxd

import (
	"context"

	"hostler/sysctl"
)

// limits are kernel limits that all containers share, since they share a range
// of user ids. A systemd container uses about seven inotify instances, so the
// kernel's default of 128 is exhausted at the seventeenth container, which then
// dies at boot although its launch reports success. The values here suffice for
// more than a thousand containers. A key takes up to 100 bytes in the kernel's
// own defaults (200 keys, 20000 bytes).
var limits = []sysctl.Setting{
	{Name: "fs/inotify/max_user_instances", Value: "16384", AtLeast: true},
	{Name: "fs/inotify/max_user_watches", Value: "1048576", AtLeast: true},
	{Name: "kernel/keys/maxkeys", Value: "20000", AtLeast: true},
	{Name: "kernel/keys/maxbytes", Value: "2000000", AtLeast: true},
}

// raiseLimits raises the limits that this host lets it write. Inside a
// container the limits belong to the surrounding host; then raiseLimits reports
// that as progress, without an error.
func (i *Initialiser) raiseLimits(ctx context.Context, progress func(string)) error {
	var settings []sysctl.Setting
	for _, s := range limits {
		if !i.opts.Sysctl.Writable(s.Name) {
			if ok, why := i.opts.Sysctl.Satisfied([]sysctl.Setting{s}); !ok {
				progress("cannot raise a kernel limit here: " + why)
			}
			continue
		}
		settings = append(settings, s)
	}
	changed, err := i.opts.Sysctl.Apply(ctx, owner, settings)
	if len(changed) > 0 {
		progress("raised the kernel's limits for many containers")
	}
	return err
}
