package lxd

import (
	"context"

	"hostler/sysctl"
)

// limits are kernel limits that count over all containers together, as they
// share one range of user ids. A systemd container holds about seven inotify
// instances, so the kernel's default of 128 ends at the seventeenth container
// (which then dies at boot while its launch reports success); the values here
// are for a thousand and more. A key takes up to 100 bytes in the kernel's
// own defaults (200 keys, 20000 bytes).
var limits = []sysctl.Setting{
	{Name: "fs/inotify/max_user_instances", Value: "16384", AtLeast: true},
	{Name: "fs/inotify/max_user_watches", Value: "1048576", AtLeast: true},
	{Name: "kernel/keys/maxkeys", Value: "20000", AtLeast: true},
	{Name: "kernel/keys/maxbytes", Value: "2000000", AtLeast: true},
}

// raiseLimits sets what this host lets us set. Inside a container the limits
// belong to the host around it, which is told, not an error.
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
