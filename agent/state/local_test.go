package state_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/agent/state/statetest"
	"hostler/internal/fault"
)

func open(t *testing.T, o state.Options) (*state.Local, state.OpenReport) {
	t.Helper()
	l, report, err := state.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, report
}

func TestConformance(t *testing.T) {
	statetest.Run(t, func(t *testing.T) state.Backend {
		l, _ := open(t, state.Options{Dir: t.TempDir()})
		return l
	})
}

func TestRecordsSurviveClose(t *testing.T) {
	dir := t.TempDir()
	l, report := open(t, state.Options{Dir: dir})
	if !report.Fresh || report.Rebuilt || report.LastGood != "" {
		t.Errorf("first: %+v", report)
	}
	fill(t, l, "m", 5)
	want := contents(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	again, report := open(t, state.Options{Dir: dir})
	if got := contents(t, again); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if report.Fresh || report.Rebuilt || report.Quarantined != "" || report.LastGood != filepath.Join(dir, "state.db.last-good") {
		t.Errorf("second: %+v", report)
	}
}

func TestFilesArePrivateToTheOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	l, _ := open(t, state.Options{Dir: dir, BackupEvery: 5})
	fill(t, l, "m", 5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, _ = open(t, state.Options{Dir: dir})
	fill(t, l, "n", 1)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 7 {
		t.Errorf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestClosedStore(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir()})
	ch, err := l.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-ch
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := <-ch; ok {
		t.Error("the watch goes on")
	}
	_, errGet := l.Get(t.Context(), state.ID{Kind: "machine", Name: "a"})
	_, errWrite := l.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "a"}})
	_, errWatch := l.Watch(t.Context())
	_, errEvents := l.WatchEvents(t.Context())
	for i, err := range []error{errGet, errWrite, errWatch, errEvents, l.Begin(t.Context(), state.Intent{Token: "t", Object: state.ID{Kind: "m", Name: "a"}})} {
		if !fault.Is(err, fault.NotReady) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestWriterWaitsNoLongerThanItsContext(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir(), Clock: func() time.Time { return time.Unix(1, 0) }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Write(ctx, state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "a"}}); err == nil {
		t.Error("a cancelled write went well")
	}
	if _, rev, err := l.List(t.Context()); err != nil || rev != 0 {
		t.Errorf("at revision %d, %v", rev, err)
	}
}

func TestTimesComeFromTheClock(t *testing.T) {
	now := time.Date(1999, 1, 2, 3, 4, 5, 6, time.UTC)
	l, _ := open(t, state.Options{Dir: t.TempDir(), Clock: func() time.Time { return now }})
	id := state.ID{Kind: "machine", Name: "a"}
	if _, err := l.Write(t.Context(), state.Atomic, state.Write{ID: id}); err != nil {
		t.Fatal(err)
	}
	made := now
	now = now.Add(-time.Hour) // a clock may go back
	if _, err := l.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: 1, Status: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	if o, err := l.Get(t.Context(), id); err != nil || !o.Created.Equal(made) || !o.Updated.Equal(now) || o.Revision != 2 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir(), MaxEvents: 10})
	for i := range 25 {
		if err := l.Record(t.Context(), state.Event{Object: state.ID{Kind: "machine", Name: "a"}, Message: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	events, err := l.Events(t.Context(), state.EventQuery{})
	if err != nil || len(events) != 10 || events[0].Message != "15" || events[9].Seq != 25 {
		t.Errorf("events %+v, %v", events, err)
	}
}

// The newest events come oldest first, page by page backwards.
func TestNewestEvents(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir()})
	a := state.ID{Kind: "machine", Name: "a"}
	for i := range 10 {
		about := a
		if i%2 == 1 {
			about.Name = "b"
		}
		if err := l.Record(t.Context(), state.Event{Object: about, Message: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	q := state.EventQuery{Object: &a, Limit: 2, Newest: true}
	for _, want := range []string{"6 8", "2 4", "0", ""} {
		var got []string
		events, err := l.Events(t.Context(), q)
		for _, e := range events {
			got = append(got, e.Message)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		if len(events) > 0 {
			q.Before = events[0].Seq
		}
	}
}

func TestCopyAfterManyWrites(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, state.Options{Dir: dir, BackupEvery: 10})
	fill(t, l, "m", 4)
	path := filepath.Join(dir, "state.db.last-good")
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no copy was made")
		}
		time.Sleep(time.Millisecond)
	}
}

// A damaged page in an open store is detected when the store is copied; from
// then on the store refuses writes. Its readers still get what was written.
func TestDamageWhileOpenStopsWrites(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, state.Options{Dir: dir})
	fill(t, l, "m", 5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	l, _ = open(t, state.Options{Dir: dir, BackupEvery: 1})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The replacement changes the last bytes of the image's name in a machine's
	// spec.
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "debian/12", "debian/13")), 0o600); err != nil {
		t.Fatal(err)
	}
	// A change of the damaged page would write it anew.
	if err := l.Begin(t.Context(), state.Intent{Token: "t", Object: state.ID{Kind: "machine", Name: "m0"}, Action: "create"}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); l.Health() == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	objects, _, err := l.List(t.Context())
	if err != nil || len(objects) != 4 {
		t.Errorf("list: %d objects, %v", len(objects), err)
	}
	for _, o := range objects {
		if !strings.Contains(string(o.Spec), "debian/12") {
			t.Errorf("%s has the damaged record %s", o.Name, o.Spec)
		}
	}
	_, err = l.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "z"}})
	if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("write: %v", err)
	}
	if l.Health() == nil {
		t.Error("the store says that it is well")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, report := open(t, state.Options{Dir: dir}); !report.Rebuilt {
		t.Errorf("opened again: %+v", report)
	}
}
