package conffiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/hosttest"
)

// errCrash simulates the death of the agent: its store fails every call.
var errCrash = errors.New("the agent died")

// modelStore is a real store that checks each write against the model. It fails
// before or after a chosen write, as in a crash.
type modelStore struct {
	state.Backend
	judge func(state.Write)
	// dies is the number of writes until the crash; 0: no crash.
	dies   int
	before bool
}

func (s *modelStore) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	if s.dies == 1 && s.before {
		return nil, errCrash
	}
	for _, w := range writes {
		s.judge(w)
	}
	results, err := s.Backend.Write(ctx, mode, writes...)
	if s.dies > 0 {
		if s.dies--; s.dies == 0 {
			return nil, errCrash
		}
	}
	return results, err
}

// model records the operator's actions and drives the real reader, the real API
// and a real store with them.
type model struct {
	t    *testing.T
	rand *rand.Rand
	seed uint64
	log  []string

	store *modelStore
	c     *confd
	r     *folderReader
	clock time.Time
	dir   string // conf.d
	away  bool   // conf.d is unmounted

	// files and applied hold the cpus of each machine by document. A document in
	// broken cannot be parsed.
	files, applied map[string]map[string]int
	broken         map[string]bool
	// consent holds the machines whose removal was allowed since their last
	// declaration; fresh those that never had an instance.
	consent, fresh map[string]bool
	obeyed         bool
	// lost holds the deletion of a machine's file, and its time.
	lost map[string]deletion
}

type deletion struct {
	file string
	at   time.Time
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d: %s\n%s", m.seed, fmt.Sprintf(format, args...), strings.Join(m.log, "\n"))
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// declares says whether a readable document declares the machine.
func (m *model) declares(machine string) bool {
	for name, machines := range m.files {
		if _, has := machines[machine]; has && !m.broken[name] {
			return true
		}
	}
	for _, machines := range m.applied {
		if _, has := machines[machine]; has {
			return true
		}
	}
	return false
}

// judge fails the test if a machine that must stay is marked for removal.
func (m *model) judge(w state.Write) {
	if machine, hand := strings.CutPrefix(w.Name, "hand-"); w.Kind == spec.KindDeclaration && w.Delete && hand && !m.consent[machine] {
		if delete(m.applied, w.Name); !m.declares(machine) {
			m.fail("the declaration %s went although no file has its machine", w.Name)
		}
	}
	if w.Kind != spec.KindMachine || w.Life == "" || w.Life == state.Alive {
		return
	}
	switch {
	case m.consent[w.Name]:
	case m.away:
		m.fail("%s is removed while conf.d is unmounted", w.Name)
	case m.declares(w.Name):
		m.fail("%s is removed although it is declared: files %v, applied %v", w.Name, m.files, m.applied)
	case len(m.broken) > 0:
		m.fail("%s is removed while %v cannot be read", w.Name, m.broken)
	case m.lost[w.Name].file != "" && m.files[m.lost[w.Name].file] == nil && m.clock.Sub(m.lost[w.Name].at) < goneFor:
		m.fail("%s is removed %s after its file", w.Name, m.clock.Sub(m.lost[w.Name].at))
	case !m.fresh[w.Name] && !m.obeyed:
		m.fail("%s is removed without consent", w.Name)
	}
}

// boot starts an agent on the store, as after a crash.
func (m *model) boot() {
	m.c = confdOver(m.t, m.store, func(o *Options) { o.Dir, o.Now = m.dir, func() time.Time { return m.clock } })
	m.r = m.c.newReader()
	m.store.dies = 0
}

// read makes the agent read conf.d; the agent may crash in it.
func (m *model) read() {
	_, _, _, err := m.r.apply(m.t.Context(), m.c)
	if errors.Is(err, errCrash) || m.store.dies == 0 && m.c.notices[m.dir] != "" && strings.Contains(m.c.notices[m.dir], errCrash.Error()) {
		m.note("  the agent died")
		m.boot()
	} else if err != nil {
		m.fail("cannot read: %v", err)
	}
}

func (m *model) text(machines map[string]int) string {
	var b strings.Builder
	b.WriteString("version: 1\nmachines:\n")
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		fmt.Fprintf(&b, "  %s: {type: lxd, image: debian/12, cpus: %d}\n", name, machines[name])
	}
	return b.String()
}

// save writes the model's files to conf.d.
func (m *model) save() {
	dir := m.dir
	if m.away {
		dir += ".away"
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, path := range old {
		if _, stays := m.files[strings.TrimSuffix(filepath.Base(path), ".yaml")]; !stays {
			_ = os.Remove(path)
		}
	}
	for name, machines := range m.files {
		text := m.text(machines)
		if m.broken[name] {
			text = "version: 1\nmachine:\n"
		}
		path := filepath.Join(dir, name+".yaml")
		if now, _ := os.ReadFile(path); string(now) != text {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

func pick[K comparable, V any](m *model, of map[K]V, less func(a, b K) int) (K, bool) {
	var none K
	if len(of) == 0 {
		return none, false
	}
	return slices.SortedFunc(maps.Keys(of), less)[m.rand.IntN(len(of))], true
}

// take removes a machine from all files, so that no two documents clash.
func (m *model) take(machine string) {
	for _, machines := range m.files {
		delete(machines, machine)
	}
}

var modelNames = []string{"m1", "m2", "m3", "m4"}

// step makes one random action of an operator.
func (m *model) step() {
	file := []string{"a", "b", "c"}[m.rand.IntN(3)]
	machine := modelNames[m.rand.IntN(len(modelNames))]
	if m.rand.IntN(6) == 0 {
		m.store.dies, m.store.before = 1+m.rand.IntN(2), m.rand.IntN(2) == 0
	}
	switch m.rand.IntN(14) {
	case 0, 1: // write a file, or move a machine from another file
		cpus := m.cpusOf(machine)
		if m.rand.IntN(4) == 0 {
			cpus++
		}
		for name, machines := range m.applied {
			if _, has := machines[machine]; has && machines[machine] != cpus {
				m.note("%s is applied as %s", machine, name)
				return
			}
		}
		m.take(machine)
		if m.files[file] == nil {
			m.files[file] = map[string]int{}
		}
		m.files[file][machine] = cpus
		m.note("write %s to %s", machine, file)
	case 2: // rename or merge files
		from, ok := pick(m, m.files, strings.Compare)
		if !ok || from == file {
			return
		}
		if m.broken[from] {
			m.broken[file] = true
		}
		if m.files[file] == nil {
			m.files[file] = map[string]int{}
		}
		maps.Copy(m.files[file], m.files[from])
		delete(m.files, from)
		delete(m.broken, from)
		m.note("rename %s to %s", from, file)
	case 3: // swap files
		other, ok := pick(m, m.files, strings.Compare)
		if !ok || m.files[file] == nil {
			return
		}
		m.files[file], m.files[other] = m.files[other], m.files[file]
		a, b := m.broken[file], m.broken[other]
		set(m.broken, file, b)
		set(m.broken, other, a)
		m.note("swap %s and %s", file, other)
	case 4:
		if m.files[file] != nil {
			m.broken[file] = true
			m.note("break %s", file)
		}
	case 5:
		delete(m.broken, file)
		m.note("mend %s", file)
	case 6:
		for gone := range m.files[file] {
			if !m.away { // else the agent never saw the machine there
				m.lost[gone] = deletion{file, m.clock}
			}
		}
		delete(m.files, file)
		delete(m.broken, file)
		m.note("delete %s", file)
	case 7:
		if m.files[file] != nil {
			delete(m.files[file], machine)
			delete(m.lost, machine)
			m.note("drop %s from %s", machine, file)
		}
	case 8:
		m.mount(!m.away)
	case 9: // apply by hand
		m.apply(machine)
	case 10:
		m.allow(machine)
	case 11, 12, 13:
		m.clock = m.clock.Add(goneFor)
		m.note("time passes")
	}
	m.save()
	m.read()
	m.look()
	if m.rand.IntN(2) == 0 {
		m.provision()
	}
}

func set(of map[string]bool, key string, is bool) {
	delete(of, key)
	if is {
		of[key] = true
	}
}

// cpusOf returns the declared cpus of a machine, or 1 if it is not declared.
func (m *model) cpusOf(machine string) int {
	for _, docs := range []map[string]map[string]int{m.files, m.applied} {
		for _, machines := range docs {
			if n, has := machines[machine]; has {
				return n
			}
		}
	}
	return 1
}

// mount unmounts conf.d or mounts it again.
func (m *model) mount(away bool) {
	if away == m.away {
		return
	}
	if m.note("unmounted %v", away); away {
		if os.Rename(m.dir, m.dir+".away") != nil || os.Mkdir(m.dir, 0o755) != nil {
			m.t.Fatal("cannot unmount")
		}
	} else if os.Remove(m.dir) != nil || os.Rename(m.dir+".away", m.dir) != nil {
		m.t.Fatal("cannot mount")
	}
	m.away = away
}

// apply applies a document with one machine; the second call deletes it.
func (m *model) apply(machine string) {
	name, ctx := "hand-"+machine, m.t.Context()
	if m.applied[name] != nil {
		m.consent[machine] = true
		outcomes, err := m.c.Delete(ctx, "declaration/"+name)
		m.note("delete declaration/%s: %v %v", name, outcomes, err)
	} else if m.c.declared(m.t)[machine] == "" { // no file with another version is in force
		text := m.text(map[string]int{machine: m.cpusOf(machine)})
		_, err := m.c.Server.Apply(ctx, client.ApplyRequest{Documents: []client.Document{{Name: name, Content: text}}})
		m.note("apply %s: %v", name, err)
	}
}

// look reads which applied documents are in force: a file may have taken over
// their machines, and an apply may have succeeded although the agent crashed.
func (m *model) look() {
	objects, _, err := m.store.List(m.t.Context(), spec.KindDeclaration)
	if err != nil {
		m.t.Fatal(err)
	}
	m.applied = map[string]map[string]int{}
	for _, o := range objects {
		var r spec.DeclarationRecord
		if err := json.Unmarshal(o.Spec, &r); err != nil {
			m.t.Fatal(err)
		}
		if r.Source != spec.SourceApply {
			continue
		}
		m.applied[o.Name] = map[string]int{}
		for name, machine := range r.Document.Machines {
			m.applied[o.Name][name] = machine.CPUs
		}
	}
	for _, machine := range modelNames {
		if m.declares(machine) {
			delete(m.consent, machine)
		}
	}
}

func (m *model) allow(machine string) {
	if _, held := m.c.lives(m.t); !slices.Contains(held, machine) {
		return
	}
	m.consent[machine] = true
	outcomes, err := m.c.Allow(m.t.Context(), "destroy", "machine/"+machine)
	m.note("allow %s: %v %v", machine, outcomes, err)
	if err != nil || outcomes[0].Error != "" {
		delete(m.consent, machine)
	}
}

// provision does a provisioner's work: it creates the declared machines and
// removes the machines that are marked for removal.
func (m *model) provision() {
	m.store.dies = 0
	objects, _, err := m.store.List(m.t.Context(), spec.KindMachine)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, o := range objects {
		w := state.Write{ID: o.ID, Revision: state.AnyRevision, UID: o.UID}
		if o.Life == state.Alive {
			w.Status = spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: o.Name}})
			delete(m.fresh, o.Name)
		} else {
			w.Delete = true
			m.fresh[o.Name] = true
		}
		if _, err := m.store.Backend.Write(m.t.Context(), state.Atomic, w); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := m.c.Redeclare(m.t.Context()); err != nil {
		m.fail("remake: %v", err)
	}
	m.note("provisioned")
}

// settle repairs all files and compares the living machines with the declared
// machines.
func (m *model) settle() {
	m.store.dies = 0
	m.mount(false)
	for name := range m.broken {
		delete(m.broken, name)
	}
	m.save()
	for range 3 {
		m.read()
		m.look()
		m.clock = m.clock.Add(goneFor)
	}
	_, held := m.c.lives(m.t)
	for _, machine := range held {
		if m.declares(machine) {
			m.fail("%s is held although it is declared", machine)
		}
		m.allow(machine)
	}
	for range 2 {
		m.provision()
	}
	alive, held := m.c.lives(m.t)
	want := map[string]bool{}
	for _, machine := range modelNames {
		if m.declares(machine) {
			want[machine] = true
		}
	}
	if !slices.Equal(alive, slices.Sorted(maps.Keys(want))) || len(held) > 0 {
		m.fail("machines %v, held %v; the model has %v: files %v, applied %v", alive, held, slices.Sorted(maps.Keys(want)), m.files, m.applied)
	}
}

// declared returns, for each machine, the name of its declaration.
func (c *confd) declared(t *testing.T) map[string]string {
	objects, _, err := c.store.List(t.Context(), spec.KindMachine)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, o := range objects {
		var r spec.MachineRecord
		if json.Unmarshal(o.Spec, &r) == nil && r.Held == "" {
			all[o.Name] = r.Declaration
		}
	}
	return all
}

// After any sequence of actions, the living machines are the declared machines.
// No machine is marked for removal while it stays declared, or without consent.
func TestMachinesAreThoseOfTheDocuments(t *testing.T) {
	shards := runtime.GOMAXPROCS(0)
	for shard := range shards {
		t.Run(fmt.Sprintf("%d of %d", shard+1, shards), func(t *testing.T) {
			t.Parallel()
			for n := shard; n < modelSequences; n += shards {
				runModel(t, uint64(n))
			}
		})
	}
}

func runModel(t *testing.T, seed uint64) {
	dir := hosttest.MemoryDir(t) // the model tests the agent and not the disk
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, clock: time.Now(), dir: filepath.Join(dir, "conf.d"), //nolint:gosec // a replay
		files: map[string]map[string]int{}, applied: map[string]map[string]int{}, broken: map[string]bool{},
		consent: map[string]bool{}, fresh: map[string]bool{}, lost: map[string]deletion{},
	}
	for _, name := range modelNames {
		m.fresh[name] = true
	}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	store, _, err := state.Open(t.Context(), state.Options{Dir: filepath.Join(dir, "state"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	defer store.Close()
	m.store = &modelStore{Backend: store, judge: m.judge}
	m.boot()
	m.obeyed = seed%2 == 0
	config := spec.DefaultConfig()
	if m.obeyed {
		config.Removals = spec.RemovalsObey
	}
	if err := m.c.writeConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for range 8 + m.rand.IntN(20) {
		m.step()
	}
	m.settle()
}
