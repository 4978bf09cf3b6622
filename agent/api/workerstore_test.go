package api

import (
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/agent/workerapi"
	"hostler/internal/hosttest"
)

// localStore returns a real store for a bench.
func localStore(t testing.TB) *state.Local {
	t.Helper()
	l, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// unhurried returns a clock by which no calls come too fast.
func unhurried() func() time.Time {
	var n atomic.Int64
	return func() time.Time { return time.Unix(n.Add(1), 0) }
}

// workerBench returns a listening server with a real store.
func workerBench(t testing.TB, change ...func(*Options)) (*bench, *state.Local) {
	t.Helper()
	l := localStore(t)
	b := newBench(t, append([]func(*Options){func(o *Options) { o.Backend, o.Clock = l, unhurried() }}, change...)...)
	b.listen(t)
	return b, l
}

func (b *bench) worker(t testing.TB, containerType string) *workerapi.Store {
	t.Helper()
	s := workerapi.NewStore(b.socket, containerType)
	t.Cleanup(s.Close)
	return s
}

// The workers' store passes the same suite as the local store.
func TestWorkersStoreConformance(t *testing.T) {
	statetest.Run(t, func(t *testing.T) state.Backend {
		b, _ := workerBench(t)
		return b.worker(t, "")
	})
}

func TestWorkersStoreKeepsWhatIsWrittenUnchanged(t *testing.T) {
	b, l := workerBench(t)
	id := state.ID{Kind: "machine", Name: "web"}
	const spec = `{"user-data":"a<b>&c \u2028 ü"}`
	if _, err := b.worker(t, "").Write(t.Context(), state.Atomic, state.Write{ID: id, Spec: []byte(spec)}); err != nil {
		t.Fatal(err)
	}
	if o, err := l.Get(t.Context(), id); err != nil || string(o.Spec) != spec {
		t.Errorf("kept %s, %v", o.Spec, err)
	}
	if o, err := b.worker(t, "").Get(t.Context(), id); err != nil || string(o.Spec) != spec {
		t.Errorf("read %s, %v", o.Spec, err)
	}
}

// A watch ends when the agent ends and when its store is closed: the store never
// looks empty.
func TestLostWatchesAreClosed(t *testing.T) {
	t.Run("the store is closed", func(t *testing.T) {
		l := localStore(t)
		b := newBench(t, func(o *Options) { o.Backend = l })
		b.listen(t)
		for _, containerType := range []string{"", "lxd"} {
			ch, err := b.worker(t, containerType).Watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer statetest.WantEnd(t, ch)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the agent stops", func(t *testing.T) {
		b, _ := workerBench(t)
		ch, err := b.worker(t, "lxd").Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.stopNow()
		statetest.WantEnd(t, ch)
	})
}
