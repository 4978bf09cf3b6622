package storageprovisioner

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/idmap"
	"hostler/storage/mounts"
)

// Sources are the providers of volumes and filesystems, by name.
type Sources struct {
	Volumes     map[string]storage.VolumeSource
	Filesystems map[string]storage.FilesystemSource
	// Views mounts filesystems for machines.
	Views Views
	// Mounts and ViewDir are the directories of the host's own mounts and of
	// the mounts that machines see.
	Mounts, ViewDir string
	// Map returns the translation of owners for unprivileged machines of a type. It
	// may ask the type's daemon, so it is called only for types with such machines
	// that declare a filesystem. It fails with fault.NotReady if the host is not ready
	// for the type yet.
	Map func(ctx context.Context, t spec.ContainerType) (idmap.Map, error)
}

// Promised returns the number of bytes by which sparse volumes can still grow
// on the disk.
func (s Sources) Promised(ctx context.Context) (sum int64) {
	add := func(source any) {
		if r, ok := source.(storage.SpaceReporter); ok {
			if space, err := r.Space(ctx); err == nil {
				sum += space.Promised
			}
		}
	}
	for _, source := range s.Volumes {
		add(source)
	}
	for _, source := range s.Filesystems {
		add(source)
	}
	return sum
}

// Views mounts filesystems for machines; see package storage/idmap.
type Views interface {
	List(ctx context.Context, also ...string) (map[string]idmap.View, error)
	Show(ctx context.Context, views []idmap.Params) []storage.Result[idmap.View]
	Hide(ctx context.Context, views []idmap.HideParams) []error
}

// storageKinds returns the kinds of objects that the worker reads and watches.
func storageKinds() []string {
	return []string{spec.KindVolume, spec.KindFilesystem, spec.KindMachine, spec.KindHost}
}

// Decode decodes the storage and the machines from a list of objects. A single
// unreadable record makes Decode fail, because a plan from partial data could
// remove storage.
func Decode(objects []state.Object) (Desired, error) { return newDecoder().desired(objects) }

// decoder caches the decoded objects.
type decoder struct {
	entities reconcile.Cache[Entity]
	machines reconcile.Cache[Machine]
}

func newDecoder() decoder { return decoder{reconcile.Cache[Entity]{}, reconcile.Cache[Machine]{}} }

func (k decoder) desired(objects []state.Object) (Desired, error) {
	stored := 0
	for i := range objects {
		if kind := objects[i].Kind; kind == spec.KindVolume || kind == spec.KindFilesystem {
			stored++
		}
	}
	d := Desired{Entities: make([]Entity, 0, stored)} // entities are large, so each is copied once
	for _, o := range objects {
		switch o.Kind {
		case spec.KindVolume, spec.KindFilesystem:
			e, err := k.entities.Decode(o, decodeEntity)
			if err != nil {
				return Desired{}, err
			}
			d.Entities = append(d.Entities, e)
		case spec.KindMachine:
			m, err := k.machines.Decode(o, decodeMachine)
			if err != nil {
				return Desired{}, err
			}
			d.Machines = append(d.Machines, m)
		}
	}
	k.entities.Keep(objects)
	k.machines.Keep(objects)
	uids := map[string]string{}
	for i := range d.Entities {
		if e := &d.Entities[i]; e.Kind == spec.KindVolume {
			uids[e.Name] = cmp.Or(e.Status.StampUID, e.UID)
		}
	}
	for i := range d.Entities {
		d.Entities[i].Bears = uids[d.Entities[i].Filesystem.Volume]
	}
	return d, nil
}

func decodeEntity(o state.Object) (Entity, error) {
	e := Entity{Kind: o.Kind, Name: o.Name, UID: o.UID, Life: o.Life, Generation: o.Generation, Record: string(o.Spec)}
	if o.Kind == spec.KindVolume {
		var record spec.VolumeRecord
		if err := o.Decode(&record, &e.Status); err != nil {
			return e, err
		}
		e.Volume = record.Volume
		e.Source, e.Size, e.Retain = e.Volume.Provider, int64(e.Volume.Size), record.Released || e.Volume.Retain
		e.Retries = record.RetryRequest
		e.Force = record.Force && e.requested()
		return e, nil
	}
	var record spec.FilesystemRecord
	if err := o.Decode(&record, &e.Status); err != nil {
		return e, err
	}
	e.Filesystem = record.Filesystem
	e.Source, e.Size, e.Retain = e.Filesystem.Provider, int64(e.Filesystem.Size), record.Released || e.Filesystem.Retain
	e.Retries = record.RetryRequest
	e.Force = record.Force && e.requested()
	if e.Filesystem.Volume != "" {
		e.Source, e.Size = Managed, 0 // whatever provider the filesystem declares
	}
	return e, nil
}

func decodeMachine(o state.Object) (Machine, error) {
	var record spec.MachineRecord
	var status spec.MachineStatus
	if err := o.Decode(&record, &status); err != nil {
		return Machine{}, err
	}
	return Machine{
		Name: o.Name, Type: record.Machine.Type, Dying: o.Life != state.Alive, Storage: record.Machine.Storage, Privileged: record.Machine.Privileged, Status: status,
	}, nil
}

// Observe lists every source that a declaration uses, with one call each, in
// parallel. It stores the errors of sources in Blind. It returns an error if
// the mount table cannot be read.
func (s Sources) Observe(ctx context.Context, desired Desired) (Observed, error) {
	o := Observed{Volumes: map[string][]storage.Volume{}, Filesystems: map[string][]storage.Filesystem{}, Blind: map[string]error{}}
	var at []string
	ctx = mounts.Once(ctx)
	used := map[string]string{} // the kind of the entities of each source
	for _, e := range desired.Entities {
		used[e.Source] = e.Kind
		if e.Kind == spec.KindFilesystem {
			at = append(at, filepath.Join(s.Mounts, e.Name))
		}
	}
	if len(used) == 0 {
		return o, nil
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	list := func(kind, source string) {
		volumes, filesystems, err := s.list(ctx, kind, source)
		mu.Lock()
		defer mu.Unlock()
		o.Volumes[source], o.Filesystems[source] = volumes, filesystems
		if err != nil {
			o.Blind[source] = err
		}
	}
	for source, kind := range used {
		asked.Go(func() { list(kind, source) })
	}
	var err error
	asked.Go(func() { o.Mounts, err = s.Views.List(ctx, at...) })
	asked.Wait()
	if err != nil {
		return Observed{}, err
	}
	s.listOtherSources(desired, o, list)
	return o, ctx.Err()
}

// All asks every source for its list and returns all volumes and filesystems of
// the namespace. If a source fails, All returns an error.
func (s Sources) All(ctx context.Context) (Observed, error) {
	o := Observed{Volumes: map[string][]storage.Volume{}, Filesystems: map[string][]storage.Filesystem{}}
	var err error
	for name, source := range s.Volumes {
		if o.Volumes[name], err = source.List(ctx); err != nil {
			return o, fmt.Errorf("cannot list the volumes of %s: %w", name, err)
		}
	}
	for name, source := range s.Filesystems {
		if o.Filesystems[name], err = source.List(ctx); err != nil {
			return o, fmt.Errorf("cannot list the filesystems of %s: %w", name, err)
		}
	}
	return o, nil
}

// Unknown returns the observed volumes and filesystems, by source, for whose
// names there is no record.
func (o Observed) Unknown(objects []state.Object) (map[string][]storage.Volume, map[string][]storage.Filesystem) {
	records := map[state.ID]bool{}
	for _, r := range objects {
		records[r.ID] = true
	}
	volumes, filesystems := map[string][]storage.Volume{}, map[string][]storage.Filesystem{}
	for source, all := range o.Volumes {
		for _, v := range all {
			if !records[state.ID{Kind: spec.KindVolume, Name: v.ID}] {
				volumes[source] = append(volumes[source], v)
			}
		}
	}
	for source, all := range o.Filesystems {
		for _, f := range all {
			if !records[state.ID{Kind: spec.KindFilesystem, Name: f.ID}] {
				filesystems[source] = append(filesystems[source], f)
			}
		}
	}
	return volumes, filesystems
}

func (s Sources) list(ctx context.Context, kind, source string) (volumes []storage.Volume, filesystems []storage.Filesystem, err error) {
	if kind == spec.KindVolume {
		from, ok := s.Volumes[source]
		if !ok {
			return nil, nil, fault.New(fault.Invalid, "this agent has no volume provider %q", source)
		}
		volumes, err = from.List(ctx)
		return volumes, nil, err
	}
	from, ok := s.Filesystems[source]
	if !ok {
		return nil, nil, fault.New(fault.Invalid, "this agent has no filesystem provider %q", source)
	}
	filesystems, err = from.List(ctx)
	return nil, filesystems, err
}

// Policy returns the policy of a plan for desired. The caller sets Now and Nudged.
func (s Sources) Policy(ctx context.Context, desired Desired, c Config) Policy {
	p := Policy{Namespace: c.Namespace, Leave: c.Leave, Withheld: c.Withheld, Mounts: s.Mounts, Views: s.ViewDir, Maps: map[spec.ContainerType]GuestMap{}}
	for i := range desired.Machines {
		g := &desired.Machines[i]
		if _, known := p.Maps[g.Type]; known || !g.needsMap() {
			continue
		}
		m, err := s.Map(ctx, g.Type)
		guests := GuestMap{Map: m}
		switch {
		case fault.Is(err, fault.NotReady):
			guests.Waiting = fmt.Sprintf("the host to be ready for %s machines", g.Type)
		case err != nil:
			guests.Missing = err.Error()
		}
		p.Maps[g.Type] = guests
	}
	return p
}

// Config is the part of the host's configuration that concerns storage.
type Config struct {
	Namespace string
	// Leave is true if storage that is no longer declared stays, as instances
	// do with the harvest modes none and unknown.
	Leave bool
	// Withheld is as in Policy.
	Withheld string
}

// ConfigOf reads the storage configuration from the host's record.
func ConfigOf(r spec.HostRecord) Config {
	harvest := r.HarvestMode()
	return Config{Namespace: r.Config.Namespace, Leave: harvest == "none" || harvest == "unknown", Withheld: r.Recovery.Withheld("")}
}

// look holds the records, an observation of the host and the planned steps.
type look struct {
	desired  Desired
	observed Observed
	policy   Policy
	steps    []Step
	planner  *planner // that planned the steps
}

func (l *look) plan() {
	l.planner = newPlanner(l.desired, l.observed, l.policy)
	l.steps = l.planner.plan()
}

// look reads the records and the host. It plans nothing yet.
func (w *Worker) look(ctx context.Context) (look, error) {
	if err := w.Await(ctx); err != nil {
		return look{}, err
	}
	objects, _, err := w.Store.List(ctx, storageKinds()...)
	if err != nil {
		return look{}, fmt.Errorf("cannot read the declared storage: %w", err)
	}
	l := look{}
	if l.desired, err = w.decoded.desired(objects); err != nil {
		return l, err
	}
	if err := reconcile.Configure(objects, func(r spec.HostRecord) { w.config = ConfigOf(r) }); err != nil {
		return l, err
	}
	if l.observed, err = w.Sources.Observe(ctx, l.desired); err != nil {
		return l, fmt.Errorf("cannot look at the host's storage: %w", err)
	}
	l.desired = l.desired.PlaceAtData(l.observed)
	l.policy = w.Sources.Policy(ctx, l.desired, w.config)
	l.policy.Now = w.Now()
	return l, nil
}
