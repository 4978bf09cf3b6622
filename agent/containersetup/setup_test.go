package containersetup_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/agent/containersetup"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// preparable is a host that can be set up for a type.
type preparable struct {
	mu          sync.Mutex
	satisfied   bool
	unsupported string
	fail        []error
	runs, looks int
	block       chan struct{}
}

func (p *preparable) Satisfied(context.Context) (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	return p.satisfied, "packages are missing"
}

func (p *preparable) Supported(context.Context) (bool, string) {
	return p.unsupported == "", p.unsupported
}

func (p *preparable) Initialise(ctx context.Context, progress func(string)) error {
	p.mu.Lock()
	p.runs++
	var err error
	if len(p.fail) > 0 {
		err, p.fail = p.fail[0], p.fail[1:]
	}
	block := p.block
	p.mu.Unlock()
	progress("installing packages")
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err == nil {
		p.mu.Lock()
		p.satisfied = true
		p.mu.Unlock()
	}
	return err
}

func (p *preparable) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

// switchable is a provisioner that can be started and stopped.
type switchable struct {
	mu sync.Mutex
	on bool
}

func (s *switchable) Start(context.Context) error { s.set(true); return nil }
func (s *switchable) Stop(context.Context) error  { s.set(false); return nil }

func (s *switchable) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

func (s *switchable) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on
}

// fallible is a provisioner that can end by itself and, if barred, fails to
// start.
type fallible struct {
	switchable
	barred, looks int // how many starts fail; how often it was looked at
}

func (f *fallible) Start(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.barred > 0 {
		f.barred--
		return errors.New("the unit is masked")
	}
	f.on = true
	return nil
}

func (f *fallible) Down(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if f.on {
		return "", nil
	}
	return "the unit failed", nil
}

func (f *fallible) looked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

type rig struct {
	t     *testing.T
	store *state.Local
	hosts map[spec.ContainerType]*preparable
	works map[spec.ContainerType]*switchable
	// lxd, if set, replaces the provisioner of that type.
	lxd       containersetup.Provisioner
	lookEvery time.Duration
	clear     func(spec.ContainerType) (more bool)
	// clearEvery is the least time between runs of Clear after failures.
	clearEvery time.Duration
	lock       containersetup.Lock
	// folder, if set, is that of LXD.
	folder func(ctx context.Context, before string) (string, error)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := &rig{t: t, store: store, hosts: map[spec.ContainerType]*preparable{}, works: map[spec.ContainerType]*switchable{}}
	r.lock = func(context.Context, string, func(string)) (func(), error) { return func() {}, nil }
	for _, typ := range []spec.ContainerType{spec.LXD, spec.KVM} {
		r.hosts[typ], r.works[typ] = &preparable{}, &switchable{}
	}
	return r
}

// start runs the setup of both types.
func (r *rig) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for typ := range r.hosts {
		var work containersetup.Provisioner = r.works[typ]
		if typ == spec.LXD && r.lxd != nil {
			work = r.lxd
		}
		var folder func(ctx context.Context, before string) (string, error)
		if typ == spec.LXD {
			folder = r.folder
		}
		w := containersetup.New(reconcile.Common{Store: r.store, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, containersetup.Options{
			Type: typ, Initialiser: r.hosts[typ], Provisioner: work, Folder: folder, LookEvery: r.lookEvery,
			ClearEvery: max(r.clearEvery, time.Nanosecond), RestEvery: time.Millisecond,
			Clear: func(context.Context) ([]string, bool, error) { return nil, r.clear != nil && r.clear(typ), nil },
			Lock: func(ctx context.Context, purpose string, waiting func(string)) (func(), error) {
				return r.lock(ctx, purpose, waiting)
			},
		})
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				r.t.Errorf("the setup ended with an error: %v", err)
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); all.Wait() }) }
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) declare(name string, t spec.ContainerType) {
	r.t.Helper()
	record := spec.MachineRecord{Machine: spec.Machine{Type: t, Image: "debian/12"}}
	write := state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Spec: spec.Encode(record), Life: state.Alive}
	if _, err := r.store.Write(r.t.Context(), state.Atomic, write); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	gone := state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Revision: state.AnyRevision, Delete: true}
	if _, err := r.store.Write(r.t.Context(), state.Atomic, gone); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) status(t spec.ContainerType) (s spec.TypeStatus) {
	r.t.Helper()
	o, err := r.store.Get(context.Background(), state.ID{Kind: spec.KindContainerType, Name: string(t)})
	if fault.Is(err, fault.NotFound) {
		return s
	}
	if err == nil {
		err = json.Unmarshal(o.Status, &s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) eventually(what string, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never came: %s (lxd %+v, kvm %+v)", what, r.status(spec.LXD), r.status(spec.KVM))
		}
	}
}

// C1: nothing is done for a type before its first machine is declared. C6: the
// type is prepared, then its provisioner starts. C2: this happens once, for any
// number of machines.
func TestTypesAreSetUpWhenFirstNeeded(t *testing.T) {
	r := newRig(t)
	r.start()
	r.declare("guest", spec.KVM)
	r.eventually("kvm is ready", func() bool { return r.works[spec.KVM].running() })
	if n := r.hosts[spec.LXD].count(); n != 0 || r.status(spec.LXD).State != "" {
		t.Errorf("lxd was prepared %d times though nothing needs it", n)
	}
	r.declare("another", spec.KVM)
	r.declare("web", spec.LXD)
	r.eventually("lxd is ready", func() bool { return r.works[spec.LXD].running() })
	if n := r.hosts[spec.KVM].count(); n != 1 {
		t.Errorf("kvm was prepared %d times", n)
	}
	if s := r.status(spec.LXD); s.State != containersetup.StateReady || s.Supported == nil || !*s.Supported {
		t.Errorf("status %+v", s)
	}
}

// C5: once the type is ready, further machines of it cause no check of the
// host.
func TestReadyTypeIsNotCheckedAgain(t *testing.T) {
	r := newRig(t)
	r.start()
	r.declare("web", spec.LXD)
	r.eventually("lxd is ready", func() bool { return r.works[spec.LXD].running() })
	looks := func() int {
		p := r.hosts[spec.LXD]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.looks
	}
	before := looks()
	r.declare("db", spec.LXD)
	r.declare("guest", spec.KVM) // its readiness shows that the worker has seen the declarations
	r.eventually("kvm is ready", func() bool { return r.works[spec.KVM].running() })
	if n := looks(); n != before || r.hosts[spec.LXD].count() != 1 {
		t.Errorf("looked %d times more, prepared %d times", n-before, r.hosts[spec.LXD].count())
	}
}

// A host that is already prepared is not changed.
func TestSatisfiedHostIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.hosts[spec.LXD].satisfied = true
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("lxd is ready", func() bool { return r.works[spec.LXD].running() })
	if n := r.hosts[spec.LXD].count(); n != 0 {
		t.Errorf("prepared %d times", n)
	}
}

// C3: a type's failure does not delay other types. C4: the failed type is
// retried automatically, with visible status, and immediately on request.
func TestFailedTypeIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.hosts[spec.KVM].fail = []error{errors.New("the mirror is away"), errors.New("the mirror is still away")}
	r.declare("guest", spec.KVM)
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("lxd is ready", func() bool { return r.works[spec.LXD].running() })
	var s spec.TypeStatus // at the time of the failure
	r.eventually("kvm failed", func() bool { s = r.status(spec.KVM); return s.State == containersetup.StateError })
	if s.Attempts.Count != 1 || s.Attempts.NextRetry == nil || !strings.Contains(s.Message, "the mirror is away") {
		t.Errorf("status %+v", s)
	}
	for i := range 2 {
		o, err := r.store.Get(t.Context(), state.ID{Kind: spec.KindContainerType, Name: "kvm"})
		if err != nil {
			t.Fatal(err)
		}
		write := state.Write{ID: o.ID, Revision: state.AnyRevision, Spec: spec.Encode(spec.TypeRecord{RetryRequest: i + 1})}
		if _, err := r.store.Write(t.Context(), state.Atomic, write); err != nil {
			t.Fatal(err)
		}
		r.eventually("another try", func() bool { return r.hosts[spec.KVM].count() == i+2 })
	}
	r.eventually("kvm is ready", func() bool { return r.works[spec.KVM].running() })
}

// F22: a retry time recorded while the clock ran a year ahead is due once the
// clock is right again.
func TestRetryOfAClockThatRanAhead(t *testing.T) {
	r := newRig(t)
	next := time.Now().Add(365 * 24 * time.Hour)
	write := state.Write{
		ID: state.ID{Kind: spec.KindContainerType, Name: "kvm"}, Spec: spec.Encode(spec.TypeRecord{}), Life: state.Alive,
		Status: spec.Encode(spec.TypeStatus{
			State: containersetup.StateError, Attempts: spec.Attempts{Count: 1, ErrorKind: string(fault.Transient), NextRetry: &next}, ObservedGeneration: 1,
		}),
	}
	if _, err := r.store.Write(t.Context(), state.Atomic, write); err != nil {
		t.Fatal(err)
	}
	r.declare("guest", spec.KVM)
	r.start()
	r.eventually("kvm is ready", func() bool { return r.works[spec.KVM].running() })
}

// C19: a host that cannot run the type reports the reason, and installs
// nothing.
func TestUnsupportedTypeIsReported(t *testing.T) {
	r := newRig(t)
	r.hosts[spec.KVM].unsupported = "there is no virtualisation"
	r.declare("guest", spec.KVM)
	r.start()
	r.eventually("the word of it", func() bool {
		s := r.status(spec.KVM)
		return s.State == containersetup.StateError && s.Supported != nil && !*s.Supported
	})
	if n := r.hosts[spec.KVM].count(); n != 0 {
		t.Errorf("prepared %d times", n)
	}
}

// C7: while another process holds the host lock, the status names the holder.
func TestHolderOfTheLockIsNamed(t *testing.T) {
	r := newRig(t)
	free := make(chan struct{})
	r.lock = func(ctx context.Context, _ string, waiting func(string)) (func(), error) {
		waiting("apt (process 7)")
		select {
		case <-free:
			return func() {}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("the holder's name", func() bool {
		s := r.status(spec.LXD)
		return s.State == containersetup.StateWaiting && strings.Contains(s.Message, "apt (process 7)")
	})
	r.eventually("the machine names the holder", func() bool {
		return strings.Contains(r.machine("web").Message, "held by apt (process 7)")
	})
	close(free)
	r.eventually("lxd is ready", func() bool { return r.works[spec.LXD].running() })
}

// An agent that is stopped during the preparation records no failure.
func TestStopInTheMiddle(t *testing.T) {
	r := newRig(t)
	r.hosts[spec.LXD].block = make(chan struct{})
	r.declare("web", spec.LXD)
	stop := r.start()
	r.eventually("the preparation", func() bool { return r.hosts[spec.LXD].count() == 1 })
	stop()
	if s := r.status(spec.LXD); s.State == containersetup.StateError || s.Attempts.Count != 0 {
		t.Errorf("status %+v", s)
	}
}

// The provisioner stops with the last machine of its type. Stamped instances
// without a record keep it running only if the harvest mode looks for them.
func TestProvisionerStopsWithTheLastMachine(t *testing.T) {
	r := newRig(t)
	r.declare("web", spec.LXD)
	r.start()
	r.eventually("lxd is ready", func() bool { return r.works[spec.LXD].running() })
	r.remove("web")
	r.eventually("the provisioner stops", func() bool { return !r.works[spec.LXD].running() })
	host := state.Write{
		ID:   state.ID{Kind: spec.KindHost, Name: spec.HostName},
		Spec: spec.Encode(spec.HostRecord{Config: spec.DefaultConfig(), Harvest: "unknown"}), Life: state.Alive,
	}
	if _, err := r.store.Write(t.Context(), state.Atomic, host); err != nil {
		t.Fatal(err)
	}
	r.eventually("it sweeps", func() bool { return r.works[spec.LXD].running() })
}
