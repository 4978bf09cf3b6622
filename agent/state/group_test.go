package state_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// slowStore returns a store whose first write blocks until release is called;
// began is closed when that write has its turn.
func slowStore(t *testing.T) (l *state.Local, dir string, began chan struct{}, release func()) {
	t.Helper()
	began, held := make(chan struct{}), make(chan struct{})
	var first sync.Once
	var armed atomic.Bool
	dir = t.TempDir()
	l, _ = open(t, state.Options{Dir: dir, BackupEvery: 1 << 30, Clock: func() time.Time {
		if armed.Load() {
			first.Do(func() { close(began); <-held })
		}
		return time.Now()
	}})
	armed.Store(true)
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	return l, dir, began, release
}

func machine(name string) state.Write {
	return state.Write{ID: state.ID{Kind: "machine", Name: name}, Spec: []byte(`{}`)}
}

// hold starts the first write and waits until it has the turn.
func hold(t *testing.T, l *state.Local, began chan struct{}, all *sync.WaitGroup) {
	t.Helper()
	all.Go(func() {
		if _, err := l.Write(t.Context(), state.Atomic, machine("first")); err != nil {
			t.Error(err)
		}
	})
	<-began
}

func waiting(t *testing.T, l *state.Local, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); l.Waiting() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, not %d", l.Waiting(), n)
		}
	}
}

func TestChangesThatWaitShareACommit(t *testing.T) {
	l, dir, began, release := slowStore(t)
	var all sync.WaitGroup
	hold(t, l, began, &all)
	before := l.Commits()
	const n = 500
	for i := range n {
		all.Go(func() {
			var err error
			switch name := fmt.Sprintf("m%d", i); i % 3 {
			case 0:
				_, err = l.Write(t.Context(), state.Each, machine(name))
			case 1:
				err = l.Begin(t.Context(), state.Intent{Token: name, Object: state.ID{Kind: "machine", Name: name}, Action: "create", Began: time.Now()})
			case 2:
				err = l.Record(t.Context(), state.Event{Object: state.ID{Kind: "machine", Name: name}, Reason: "Created", Time: time.Now()})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	waiting(t, l, n)
	release()
	all.Wait()
	if commits := l.Commits() - before; commits > 5 {
		t.Errorf("%d commits for %d changes", commits, n)
	}
	want := contents(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, report := open(t, state.Options{Dir: dir})
	if contents(t, again) != want || report.Rebuilt {
		t.Errorf("after opening again: %+v\n%s", report, contents(t, again))
	}
}

// Changes for which a user waits precede all changes of workers.
func TestUrgentChangesAreMadeFirst(t *testing.T) {
	l, _, began, release := slowStore(t)
	var all sync.WaitGroup
	hold(t, l, began, &all)
	const n = 5000
	for i := range n {
		all.Go(func() {
			if _, err := l.Write(t.Context(), state.Atomic, machine(fmt.Sprintf("m%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	waiting(t, l, n)
	var urgent int64
	all.Go(func() {
		results, err := l.Write(state.Urgent(t.Context()), state.Atomic, machine("urgent"))
		if err != nil {
			t.Error(err)
			return
		}
		urgent = results[0].Object.Revision
	})
	waiting(t, l, n+1)
	release()
	all.Wait()
	if urgent != 2 {
		t.Errorf("it was change %d of %d", urgent, n+2)
	}
}

func TestRefusedChangeDoesNotFailItsCommit(t *testing.T) {
	l, dir, began, release := slowStore(t)
	var all sync.WaitGroup
	hold(t, l, began, &all)
	var made, conflicts atomic.Int64
	for i := range 100 {
		all.Go(func() {
			// The second object exists already, so the first write must be rolled back.
			_, err := l.Write(t.Context(), state.Atomic, machine(fmt.Sprintf("half%d", i)), machine("first"))
			if fault.Is(err, fault.Conflict) {
				conflicts.Add(1)
			} else {
				t.Errorf("refused by %v", err)
			}
		})
		all.Go(func() {
			if _, err := l.Write(t.Context(), state.Atomic, machine(fmt.Sprintf("whole%d", i))); err == nil {
				made.Add(1)
			}
		})
	}
	waiting(t, l, 200)
	release()
	all.Wait()
	if made.Load() != 100 || conflicts.Load() != 100 {
		t.Errorf("%d made, %d conflicts", made.Load(), conflicts.Load())
	}
	want := contents(t, l)
	if strings.Contains(want, "half") || strings.Count(want, "whole") != 100 {
		t.Error(want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if again, report := open(t, state.Options{Dir: dir}); contents(t, again) != want || report.Rebuilt {
		t.Errorf("after opening again: %+v", report)
	}
}

func TestChangeWithoutWaitersIsNotMade(t *testing.T) {
	l, _, began, release := slowStore(t)
	var all sync.WaitGroup
	hold(t, l, began, &all)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := l.Write(ctx, state.Atomic, machine("gone"))
		gone <- err
	}()
	waiting(t, l, 1)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	release()
	all.Wait()
	if _, err := l.Get(t.Context(), state.ID{Kind: "machine", Name: "gone"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("it was made: %v", err)
	}
}
