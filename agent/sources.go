package agent

import (
	"hostler/agent/spec"
	"hostler/agent/storageprovisioner"
	"hostler/internal/run"
	"hostler/internal/units"
	"hostler/packaging"
	"hostler/storage"
	"hostler/storage/idmap"
	"hostler/storage/loop"
	"hostler/storage/managedfs"
	"hostler/storage/rootfs"
	"hostler/storage/tmpfs"
)

// storageSources returns all providers of volumes and filesystems.
func (h *host) storageSources() storageprovisioner.Sources {
	p, ns, log := h.paths, h.config().Namespace, h.logger.With("part", "storage")
	managed := func(dir string) *managedfs.Source {
		o := managedfs.Options{Dir: dir, Namespace: ns, Runner: run.Host{}, Install: h.installFor, Log: log}
		if h.limited() {
			o.Grower = h.runner(units.Grow)
		}
		return managedfs.New(o)
	}
	return storageprovisioner.Sources{
		Volumes: map[string]storage.VolumeSource{
			"loop": loop.New(loop.Options{Dir: p.Volumes(), Namespace: ns, Log: log}),
		},
		Filesystems: map[string]storage.FilesystemSource{
			"tmpfs": tmpfs.New(tmpfs.Options{Dir: p.Filesystems("tmpfs"), Namespace: ns, Log: log}),
			"rootfs": rootfs.New(rootfs.Options{
				Dir: p.Mounts("rootfs"), Filesystems: managed(p.Rootfs("filesystems")), Log: log,
				Volumes: loop.New(loop.Options{Dir: p.Rootfs("volumes"), Namespace: ns, Log: log}),
			}),
			storageprovisioner.Managed: managed(p.Filesystems(storageprovisioner.Managed)),
		},
		Views:  idmap.New(idmap.Options{Dir: p.Mounts("machines"), Runner: h.runner(units.Users)}),
		Mounts: p.Mounts("host"), ViewDir: p.Mounts("machines"),
		// A hypervisor runs as root and uses the ids that root may delegate.
		Map: func() (idmap.Map, error) { return idmap.Of(p.SubUIDs(), p.SubGIDs(), "root", guestIDs) },
	}
}

// guestIDs are the ids that LXD gives to containers if /etc/subuid and
// /etc/subgid do not exist.
var guestIDs = idmap.Map{
	Users:  idmap.Range{First: 1_000_000, Count: 1_000_000_000},
	Groups: idmap.Range{First: 1_000_000, Count: 1_000_000_000},
}

// runner returns the Runner for a kind of work: in a unit of systemd each
// command is a unit, with privileges that the agent's own unit does not have.
func (h *host) runner(k units.Kind) run.Runner {
	if h.limited() {
		return units.New(k, h.logger.With("part", "units"))
	}
	return run.Host{}
}

func (h *host) packages(c spec.Config) packaging.Manager {
	return packaging.NewApt(h.paths, h.runner(units.Apt), c.Apt.Proxy, h.logger.With("part", "packages"))
}
