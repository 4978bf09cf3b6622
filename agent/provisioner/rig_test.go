package provisioner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// rig is a worker on a real store and the in-memory broker.
type rig struct {
	t      *testing.T
	store  *state.Local
	fake   *brokertest.Fake
	config provisioner.Config
	resync time.Duration
	tokens atomic.Int64
	passes atomic.Int64
	// backend is the worker's store; nil: the real store.
	backend state.Backend
	// differ compares instances with declarations; nil: the fake does.
	differ containerbroker.Differ
	panics atomic.Bool // makes the next token, and so an operation, panic
	stop   func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("cannot close the store: %v", err)
		}
	})
	return &rig{
		t: t, store: store, fake: brokertest.New(), resync: time.Hour, stop: func() {},
		config: provisioner.Config{
			Namespace: "hostler", Harvest: provisioner.HarvestDestroyed, Concurrency: 4,
			StartRetries: 2, RetryDelay: 20 * time.Millisecond, TransientRetryInterval: 50 * time.Millisecond,
		},
	}
}

// start runs a worker. The returned function stops it and waits for its end.
// The end of the test stops the worker too.
func (r *rig) start() (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var store state.Backend = r.store
	if r.backend != nil {
		store = r.backend
	}
	var differ containerbroker.Differ = r.fake
	if r.differ != nil {
		differ = r.differ
	}
	w := provisioner.New(reconcile.Common{Store: store, Now: time.Now, Logger: slog.New(slog.DiscardHandler), Resync: r.resync, Metrics: r}, provisioner.Options{
		Type: spec.LXD, Broker: r.fake, Differ: differ, Images: r.fake, Defaults: r.config, NewToken: r.newToken,
	})
	go func() { done <- w.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("the worker ended with an error: %v", err)
		}
	}
	r.t.Cleanup(r.stop)
	return r.stop
}

func (r *rig) newToken() string {
	if r.panics.CompareAndSwap(true, false) {
		panic("no token")
	}
	return fmt.Sprintf("token-%d", r.tokens.Add(1))
}

// declare writes a machine's record as an apply does.
func (r *rig) declare(name string, change ...func(*spec.MachineRecord)) state.Object {
	r.t.Helper()
	record := spec.MachineRecord{Header: spec.Header{Declaration: "test"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}}
	for _, c := range change {
		c(&record)
	}
	id := state.ID{Kind: spec.KindMachine, Name: name}
	write := state.Write{ID: id, Spec: spec.Encode(record), Life: state.Alive}
	if _, err := r.store.Get(r.t.Context(), id); err == nil {
		write.Revision = state.AnyRevision // the worker may write the status meanwhile
	}
	return r.write(write)
}

func (r *rig) write(w state.Write) state.Object {
	r.t.Helper()
	results, err := r.store.Write(r.t.Context(), state.Atomic, w)
	if err != nil {
		r.t.Fatalf("cannot write %s/%s: %v", w.Kind, w.Name, err)
	}
	return results[0].Object
}

// remove marks a machine as no longer declared.
func (r *rig) remove(name string) {
	r.t.Helper()
	r.write(state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Revision: state.AnyRevision, Life: state.Dying})
}

func (r *rig) status(name string) (spec.MachineStatus, bool) {
	r.t.Helper()
	o, err := r.store.Get(context.Background(), state.ID{Kind: spec.KindMachine, Name: name})
	if fault.Is(err, fault.NotFound) {
		return spec.MachineStatus{}, false
	}
	if err != nil {
		r.t.Fatal(err)
	}
	var s spec.MachineStatus
	if len(o.Status) > 0 {
		if err := json.Unmarshal(o.Status, &s); err != nil {
			r.t.Fatal(err)
		}
	}
	return s, true
}

// eventually waits for a condition, and prints the state when the wait fails.
func (r *rig) eventually(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			r.t.Fatalf("never came: %s\n%s", what, r.fake)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rig) awaitState(name string, want spec.MachineState) spec.MachineStatus {
	r.t.Helper()
	var last spec.MachineStatus
	r.eventually(fmt.Sprintf("%s is %s", name, want), func() bool {
		last, _ = r.status(name)
		return last.State == want
	})
	return last
}

func (r *rig) awaitGone(name string) {
	r.t.Helper()
	r.eventually(name+" has no record", func() bool { _, ok := r.status(name); return !ok })
}

// awaitPass wakes the worker and waits for two passes, because operations that
// the first pass starts show in the second.
func (r *rig) awaitPass() {
	r.t.Helper()
	for range 2 {
		before := r.passes.Load()
		r.write(state.Write{
			ID: state.ID{Kind: spec.KindMachine, Name: "of-another-type"}, Life: state.Alive, Revision: r.revision("of-another-type"),
			Spec: spec.Encode(spec.MachineRecord{Machine: spec.Machine{Type: spec.KVM, Image: fmt.Sprint(before)}}),
		})
		r.eventually("another pass", func() bool { return r.passes.Load() > before })
	}
}

// Pass implements reconcile.Metrics.
func (r *rig) Pass(time.Duration, error) { r.passes.Add(1) }

// Operation implements reconcile.Metrics.
func (r *rig) Operation(string, time.Duration, error) {}

func (r *rig) revision(name string) int64 { return r.revisionOf(spec.KindMachine, name) }

func (r *rig) revisionOf(kind, name string) int64 {
	o, err := r.store.Get(r.t.Context(), state.ID{Kind: kind, Name: name})
	if err != nil {
		return 0
	}
	return o.Revision
}

// order returns, for each text, the index of the first operation that contains
// it, or -1.
func (r *rig) order(texts ...string) []int {
	at := make([]int, len(texts))
	for i, text := range texts {
		at[i] = slices.IndexFunc(r.fake.Operations(), func(op string) bool { return strings.Contains(op, text) })
	}
	return at
}

// badStore is a store whose calls fail while the test asks for that.
type badStore struct {
	state.Backend
	list  func() error
	write func(state.Write) error
	// refuse is the result of single writes of a call.
	refuse func(state.Write) error
}

func (s badStore) List(ctx context.Context, kinds ...string) ([]state.Object, int64, error) {
	if s.list != nil {
		if err := s.list(); err != nil {
			return nil, 0, err
		}
	}
	return s.Backend.List(ctx, kinds...)
}

func (s badStore) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	for _, w := range writes {
		if s.write != nil {
			if err := s.write(w); err != nil {
				return nil, err
			}
		}
	}
	if s.refuse == nil || mode != state.Each {
		return s.Backend.Write(ctx, mode, writes...)
	}
	results := make([]state.Result, len(writes))
	for i, w := range writes {
		if results[i].Err = s.refuse(w); results[i].Err != nil {
			continue
		}
		one, err := s.Backend.Write(ctx, mode, w)
		if err != nil {
			return nil, err
		}
		results[i] = one[0]
	}
	return results, nil
}

// closingStore is a store whose watches end at once.
type closingStore struct{ state.Backend }

func (closingStore) Watch(context.Context, ...string) (<-chan []state.ID, error) {
	ids := make(chan []state.ID)
	close(ids)
	return ids, nil
}

func (r *rig) runOnClosingStore() error {
	return provisioner.New(reconcile.Common{Store: closingStore{r.store}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, provisioner.Options{
		Type: spec.LXD, Broker: r.fake, Differ: r.fake, Images: r.fake, Defaults: r.config, NewToken: func() string { return "token" },
	}).Run(r.t.Context())
}
