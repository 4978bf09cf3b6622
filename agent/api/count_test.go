package api

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/workerapi"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
	"hostler/internal/hosttest"
)

// few limits the host to that many machines.
func (b *bench) few(most int) {
	c := spec.DefaultConfig()
	c.MaxMachines = most
	b.store.put(id(spec.KindHost, spec.HostName), "alive", spec.HostRecord{Config: c}, nil)
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("m%d", i))
	}
	return names
}

func TestMoreMachinesThanTheHostTakesAreRefused(t *testing.T) {
	b := newBench(t)
	_, err := b.Apply(t.Context(), request("many", yaml(numbered(2001)...)))
	faulttest.Want(t, err, fault.Invalid, "2001 machines", "at most 2000", "max-machines")
	b.few(3)
	for _, dry := range []bool{true, false} {
		req := request("many", yaml("a", "b", "c", "d"))
		req.DryRun = dry
		_, err := b.Apply(t.Context(), req)
		faulttest.Want(t, err, fault.Invalid, "4 machines", "at most 3", "max-machines")
	}
	if objects, _, err := b.store.List(t.Context(), spec.KindMachine); err != nil || len(objects) > 0 {
		t.Fatalf("%d machines, %v", len(objects), err)
	}
	if _, err := b.Apply(t.Context(), request("some", yaml("a", "b", "c"))); err != nil {
		t.Fatal(err)
	}
	// Existing machines stay, and may change, after the limit is lowered.
	b.few(2)
	changed := strings.Replace(yaml("a", "b", "c"), "image: debian/12}", "image: debian/12, cpus: 2}", 1)
	if _, err := b.Apply(t.Context(), request("some", changed)); err != nil {
		t.Error(err)
	}
	_, err = b.Apply(t.Context(), request("another", yaml("e")))
	faulttest.Want(t, err, fault.Invalid, "4 machines", "at most 2")
}

func TestAFileWithMoreMachinesThanTheHostTakesIsRefused(t *testing.T) {
	b := newBench(t)
	b.few(3)
	a := b.files(t, map[string]string{"a.yaml": yaml("a", "b"), "many.yaml": yaml("c", "d", "e", "f")})
	faulttest.Want(t, a.Refused[folder+"many.yaml"], fault.Invalid, "at most 3")
	if len(a.Refused) != 1 {
		t.Errorf("refused: %v", a.Refused)
	}
	if objects, _, err := b.store.List(t.Context(), spec.KindMachine); err != nil || len(objects) != 2 {
		t.Errorf("%d machines, %v", len(objects), err)
	}
}

// An apply does not wait for the writes of workers.
func TestAnApplyIsWrittenBeforeWhatWorkersWrite(t *testing.T) {
	began, held := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	var first sync.Once
	l, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Clock: func() time.Time {
		if armed.Load() {
			first.Do(func() { close(began); <-held })
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(func() { release(); l.Close() })
	b := newBench(t, func(o *Options) { o.Backend = l })
	client := b.listen(t)
	const n = 40
	workers := make([]*workerapi.Store, n) // a single store has fewer calls at once
	for i := range workers {
		workers[i] = b.worker(t, "lxd")
	}
	for i := range n {
		declareMachine(t, l, fmt.Sprintf("m%d", i), spec.LXD)
	}
	armed.Store(true)
	var all sync.WaitGroup
	status := spec.Encode(spec.MachineStatus{State: spec.MachinePending})
	write := func(i int) {
		if _, err := workers[i].Write(t.Context(), state.Atomic, state.Write{ID: machineID(fmt.Sprintf("m%d", i)), Revision: state.AnyRevision, Status: status}); err != nil {
			t.Error(err)
		}
	}
	all.Go(func() { write(0) })
	<-began
	for i := range n - 1 {
		all.Go(func() { write(i + 1) })
	}
	eventually(t, "the workers' writes", func() bool { return l.Waiting() == n-1 })
	all.Go(func() {
		if _, err := client.Apply(t.Context(), request("web", yaml("web"))); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the apply", func() bool { return l.Waiting() == n })
	release()
	all.Wait()
	web, err := l.Get(t.Context(), machineID("web"))
	if err != nil {
		t.Fatal(err)
	}
	objects, _, err := l.List(t.Context(), spec.KindMachine)
	if err != nil {
		t.Fatal(err)
	}
	earlier := 0
	for _, o := range objects {
		if len(o.Status) > 0 && o.Revision < web.Revision {
			earlier++
		}
	}
	if earlier > 1 { // the write that had its turn
		t.Errorf("%d writes of workers came first", earlier)
	}
}
