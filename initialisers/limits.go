package initialisers

import (
	"context"

	"hostler/sysctl"
)

// Limits is the part of package sysctl that the initialisers use.
type Limits interface {
	Satisfied(settings []sysctl.Setting) (bool, string)
	Writable(name string) bool
	Apply(ctx context.Context, owner string, settings []sysctl.Setting) ([]string, error)
}

// ContainerLimits are kernel limits that all containers share, because they
// share a range of user ids. A systemd container uses about seven inotify
// instances, so the kernel's default of 128 is exhausted at the seventeenth
// container, which then dies at boot although its launch reports success. The
// values here are enough for more than a thousand containers. maxbytes allows
// 100 bytes for each key, like the kernel's defaults (200 keys, 20000 bytes).
var ContainerLimits = []sysctl.Setting{
	{Name: "fs/inotify/max_user_instances", Value: "16384", AtLeast: true},
	{Name: "fs/inotify/max_user_watches", Value: "1048576", AtLeast: true},
	{Name: "kernel/keys/maxkeys", Value: "20000", AtLeast: true},
	{Name: "kernel/keys/maxbytes", Value: "2000000", AtLeast: true},
}

// RaiseLimits raises the limits that it can write, for a type as their owner.
// Inside a container it cannot write them, because they belong to the host
// outside. If such a limit is too low, RaiseLimits reports that as progress and
// returns no error.
func RaiseLimits(ctx context.Context, l Limits, owner string, progress func(string)) error {
	var settings []sysctl.Setting
	for _, s := range ContainerLimits {
		if !l.Writable(s.Name) {
			if ok, why := l.Satisfied([]sysctl.Setting{s}); !ok {
				progress("cannot raise a kernel limit here: " + why)
			}
			continue
		}
		settings = append(settings, s)
	}
	changed, err := l.Apply(ctx, owner, settings)
	if len(changed) > 0 {
		progress("raised the kernel's limits for many containers")
	}
	return err
}
