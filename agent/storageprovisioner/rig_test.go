package storageprovisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// memory is an in-memory store with the methods that the worker needs.
type memory struct {
	state.Backend
	mu       sync.Mutex
	objects  map[state.ID]*state.Object
	uids     int
	revision int64
	// states are the written states, by KIND/NAME or KIND/NAME MACHINE, without
	// repetitions.
	states map[string][]string
	events []state.Event
	// refuses, if set, fails all writes; changed is the channel of Watch. wrote is
	// called after each write of a status.
	refuses error
	wrote   func(state.ID)
	changed chan []state.ID
}

func (m *memory) Watch(_ context.Context, kinds ...string) (<-chan []state.ID, error) {
	if strings.Join(kinds, " ") != strings.Join(storageKinds(), " ") {
		return nil, fmt.Errorf("watches %v", kinds)
	}
	return m.changed, nil
}

func (m *memory) List(_ context.Context, kinds ...string) ([]state.Object, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []state.Object
	for id, o := range m.objects {
		if slices.Contains(kinds, id.Kind) {
			all = append(all, *o)
		}
	}
	slices.SortFunc(all, func(a, b state.Object) int { return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name) })
	return all, 0, nil
}

func (m *memory) Write(_ context.Context, _ state.Mode, writes ...state.Write) ([]state.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuses != nil {
		return nil, m.refuses
	}
	results := make([]state.Result, len(writes))
	for i, w := range writes {
		o := m.objects[w.ID]
		switch {
		case o == nil && w.Revision == state.AnyRevision:
			results[i].Err = fault.New(fault.NotFound, "no %s", w.Name)
			continue
		case o == nil:
			m.uids++
			o = &state.Object{ID: w.ID, UID: fmt.Sprintf("uid-%d", m.uids), Life: state.Alive}
			m.objects[w.ID] = o
		case w.Delete:
			delete(m.objects, w.ID)
			continue
		}
		if w.Spec != nil && string(w.Spec) != string(o.Spec) || w.Life != "" && w.Life != o.Life {
			o.Generation++
		}
		m.revised(o)
		if w.Spec != nil {
			o.Spec = w.Spec
		}
		if w.Life != "" {
			o.Life = w.Life
		}
		if w.Status != nil {
			o.Status = w.Status
			m.note(w)
			if m.wrote != nil {
				m.wrote(w.ID)
			}
		}
		results[i].Object = *o
	}
	return results, nil
}

func (m *memory) revised(o *state.Object) {
	m.revision++
	o.Revision = m.revision
}

func (m *memory) note(w state.Write) {
	var s spec.StorageStatus
	if w.Kind == spec.KindMachine || json.Unmarshal(w.Status, &s) != nil {
		return
	}
	note := func(key string, word spec.StorageState) {
		if all := m.states[key]; len(all) == 0 || all[len(all)-1] != string(word) {
			m.states[key] = append(all, string(word))
		}
	}
	note(w.Kind+"/"+w.Name, s.State)
	for machine, a := range s.Attachments {
		note(w.Kind+"/"+w.Name+" "+machine, a.State)
	}
}

func (m *memory) Record(_ context.Context, events ...state.Event) error {
	m.events = append(m.events, events...)
	return nil
}

// fatal is the common interface of tests and property tests.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rig is a worker on an in-memory host with its own clock.
type rig struct {
	t     fatal
	store *memory
	host  *fakeHost
	now   time.Time
	w     *Worker
	// notices are the worker's notices in the host's status.
	notices map[string]string
}

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func newRig(t fatal) *rig {
	r := &rig{
		t: t, host: newFakeHost(), now: t0,
		store: &memory{objects: map[state.ID]*state.Object{}, states: map[string][]string{}}, notices: map[string]string{},
	}
	r.restart()
	return r
}

// restart starts a new agent on the same store and host.
func (r *rig) restart() {
	r.w = New(reconcile.Common{
		Store: r.store, Now: func() time.Time { return r.now }, Logger: slog.New(slog.DiscardHandler),
		Notice: func(key, text string) { r.notices[key] = text },
	}, Options{Sources: r.host.sources(), Defaults: Config{Namespace: "test"}})
}

// pass runs a pass and returns the time of the next one.
func (r *rig) pass() time.Time {
	r.t.Helper()
	next, err := r.w.converge(context.Background())
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	if len(r.host.wrong) > 0 {
		r.t.Fatalf("%s\nafter %s", strings.Join(r.host.wrong, "\n"), strings.Join(r.host.calls, "\n"))
	}
	return next
}

func (r *rig) put(id state.ID, record any, life state.Life) {
	r.t.Helper()
	w := state.Write{ID: id, Spec: spec.Encode(record), Life: life}
	if _, there := r.store.objects[id]; there {
		w.Revision = state.AnyRevision
	}
	if _, err := r.store.Write(context.Background(), state.Each, w); err != nil {
		r.t.Fatalf("%v", err)
	}
}

func (r *rig) volume(name string, v spec.Volume) {
	if v.Provider == "" {
		v.Provider = "loop"
	}
	if v.Size == 0 {
		v.Size = spec.GiB
	}
	r.put(state.ID{Kind: spec.KindVolume, Name: name}, spec.VolumeRecord{Volume: v}, state.Alive)
}

func (r *rig) filesystem(name string, f spec.Filesystem) {
	if f.Volume == "" && f.Size == 0 {
		f.Size = spec.GiB
	}
	r.put(state.ID{Kind: spec.KindFilesystem, Name: name}, spec.FilesystemRecord{Filesystem: f}, state.Alive)
}

func (r *rig) machine(name string, attachments ...spec.Attachment) {
	r.put(state.ID{Kind: spec.KindMachine, Name: name}, spec.MachineRecord{Machine: spec.Machine{Type: spec.LXD, Storage: attachments}}, state.Alive)
}

// instance writes a machine's status as its provisioner does once the instance
// is as declared and has the declared storage.
func (r *rig) instance(name string) {
	o := r.store.objects[state.ID{Kind: spec.KindMachine, Name: name}]
	o.Status = spec.Encode(spec.MachineStatus{
		State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: name}, ObservedGeneration: o.Generation, Uses: r.offered(name),
	})
	r.store.revised(o)
	r.letGo(name)
	var record spec.MachineRecord
	if err := json.Unmarshal(o.Spec, &record); err != nil {
		r.t.Fatalf("%v", err)
	}
	for _, a := range record.Machine.Storage {
		if a.Volume != "" {
			r.host.used["volume/"+a.Volume] = name
		} else {
			r.host.used["filesystem/"+a.Filesystem] = name
		}
	}
}

// offered returns the storage that the machine declares and is offered.
func (r *rig) offered(name string) []string {
	r.t.Helper()
	var record spec.MachineRecord
	if err := json.Unmarshal(r.store.objects[state.ID{Kind: spec.KindMachine, Name: name}].Spec, &record); err != nil {
		r.t.Fatalf("%v", err)
	}
	offered := []string{}
	for _, a := range record.Machine.Storage {
		kind, object, _ := strings.Cut(a.Object(), "/")
		if r.status(kind, object).Attachments[name].Source != "" {
			offered = append(offered, a.Object())
		}
	}
	return offered
}

// letGo releases an instance's storage, like the end of the instance.
func (r *rig) letGo(machine string) {
	for object, by := range r.host.used {
		if by == machine {
			delete(r.host.used, object)
		}
	}
}

func (r *rig) gone(machine string) {
	delete(r.store.objects, state.ID{Kind: spec.KindMachine, Name: machine})
	r.letGo(machine)
}

func (r *rig) life(kind, name string, life state.Life) {
	if o := r.store.objects[state.ID{Kind: kind, Name: name}]; o != nil && o.Life != life {
		o.Life = life
		o.Generation++
		r.store.revised(o)
	}
}

func (r *rig) status(kind, name string) spec.StorageStatus {
	r.t.Helper()
	var s spec.StorageStatus
	o, there := r.store.objects[state.ID{Kind: kind, Name: name}]
	if !there {
		r.t.Fatalf("%s/%s has no record", kind, name)
	}
	if len(o.Status) > 0 {
		if err := json.Unmarshal(o.Status, &s); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
	return s
}

func (r *rig) states(key string) string { return strings.Join(r.store.states[key], " ") }

// web declares a machine with a filesystem on a volume, one in memory, one on
// the host's filesystem and a volume of its own.
func (r *rig) web() {
	r.volume("data", spec.Volume{})
	r.volume("raw", spec.Volume{Allocation: spec.AllocationSparse})
	r.filesystem("www", spec.Filesystem{Volume: "data"})
	r.filesystem("scratch", spec.Filesystem{Provider: "tmpfs"})
	r.filesystem("logs", spec.Filesystem{Provider: "rootfs", Shared: true})
	r.machine("web", webStorage...)
}

var webStorage = []spec.Attachment{
	{Filesystem: "www", Path: "/srv"},
	{Filesystem: "scratch", Path: "/scratch"},
	{Filesystem: "logs", Path: "/var/log/app", ReadOnly: true},
	{Volume: "raw"},
}

// sources are the sources in the attachment statuses of machines.
func (r *rig) sources() string {
	var all []string
	for id, o := range r.store.objects {
		if id.Kind == spec.KindMachine || len(o.Status) == 0 {
			continue
		}
		for machine, a := range r.status(id.Kind, id.Name).Attachments {
			all = append(all, id.Kind+"/"+id.Name+" "+machine+" "+a.Source)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
