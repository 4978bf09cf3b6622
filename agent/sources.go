package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hostler/agent/containersetup"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/internal/fault"
	"hostler/internal/paths"
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
	recorded := recentIDs{read: h.recordedIDs, now: h.now}
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
		Map: func(ctx context.Context, t spec.ContainerType) (idmap.Map, error) {
			m, err := guestMap(p, ignoresIDs(p, t), func() (string, error) { return recorded.get(ctx) })
			return m, h.withoutMap(ctx, t, err)
		},
	}
}

// guestIDs are the ids that LXD gives to containers if it has no rows of root in
// /etc/subuid and /etc/subgid and its own user namespace has all ids.
var guestIDs = idmap.Map{
	Users:  idmap.Range{First: 1_000_000, Count: 1_000_000_000},
	Groups: idmap.Range{First: 1_000_000, Count: 1_000_000_000},
}

// guestMap returns the ids of a type's containers. Whatever starts them runs as root,
// so it uses the ids that root has permission to delegate. A daemon that ignores the
// files of these ids has the ids of its containers on record, so recorded returns the
// record of a container; before the first container it is "" and the default is
// guestIDs.
func guestMap(p paths.Paths, ignores bool, recorded func() (string, error)) (idmap.Map, error) {
	if !ignores {
		return idmap.Of(p.SubUIDs(), p.SubGIDs(), "root", guestIDs)
	}
	text, err := recorded()
	if err != nil || text == "" {
		return guestIDs, err
	}
	return idmap.Recorded(text)
}

// withoutMap returns the reason why there is no map of a type's containers. It is
// fault.NotReady until the host is ready for the type, because the initialiser or its
// packages give root the ids.
func (h *host) withoutMap(ctx context.Context, t spec.ContainerType, reason error) error {
	if reason == nil {
		return nil
	}
	var status spec.TypeStatus
	o, err := h.store.Get(ctx, state.ID{Kind: spec.KindContainerType, Name: string(t)})
	if err == nil {
		err = o.Decode(nil, &status)
	}
	if fault.Is(err, fault.NotFound) || err == nil && status.State != containersetup.StateReady {
		return fault.New(fault.NotReady, "%w", reason)
	}
	return reason
}

// recordedFor is the time for which the ids on record count. To read them, LXD lists
// all its instances, and an apply can have ten looks at the storage a second. The ids
// of a host almost never change.
const recordedFor = time.Minute

// recentIDs remembers what read returned, except errors.
type recentIDs struct {
	read func(context.Context) (string, error)
	now  func() time.Time

	mu    sync.Mutex
	text  string
	until time.Time
}

func (r *recentIDs) get(ctx context.Context) (string, error) {
	r.mu.Lock()
	text, recent := r.text, r.now().Before(r.until)
	r.mu.Unlock()
	if recent {
		return text, nil
	}
	text, err := r.read(ctx)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text, r.until = text, r.now().Add(recordedFor)
	return text, nil
}

// runner returns the Runner for a kind of work. If the agent is a unit of
// systemd, this Runner starts each command as a separate unit with privileges
// that the agent's unit does not have.
func (h *host) runner(k units.Kind) run.Runner {
	if h.limited() {
		return units.New(k, h.logger.With("part", "units"))
	}
	return run.Host{}
}

// installFor installs a package with the tools of a filesystem type.
func (h *host) installFor(ctx context.Context, pkg string, progress func(string)) error {
	return h.install(ctx, pkg, progress, pkg)
}

// install installs the named packages under the host lock. All families of
// distributions must have packages of these names. what names the packages in
// messages.
func (h *host) install(ctx context.Context, what string, progress func(string), names ...string) error {
	release, err := packaging.ReadRelease(h.paths.OSRelease())
	if err != nil {
		return err
	}
	if _, err := packaging.InAll(names...).On(release, what); err != nil {
		return err
	}
	unlock, err := h.lock(ctx, "install "+what, func(holder string) { progress("waiting for " + holder) })
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", what, err)
	}
	defer unlock()
	return h.packages(h.config()).Install(ctx, names, progress)
}

func (h *host) packages(c spec.Config) packaging.Manager {
	return packaging.NewApt(h.paths, h.runner(units.Apt), run.Host{}, c.Apt.Proxy, h.hold, h.logger.With("part", "packages"))
}

// noticeRelease shows in the host's status for which release hostler installs
// packages, if the host's release is a derivative or its family is unknown.
func (h *host) noticeRelease() {
	if r, err := packaging.ReadRelease(h.paths.OSRelease()); err == nil {
		h.notice("release", r.Notice())
	}
}
