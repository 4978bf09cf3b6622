package state_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler/agent/state"
	"hostler/internal/fault"
)

func status(name, text string, relaxed bool) state.Write {
	return state.Write{
		ID: state.ID{Kind: "machine", Name: name}, Revision: state.AnyRevision,
		Status: fmt.Appendf(nil, `{"message":%q}`, text), Relaxed: relaxed,
	}
}

func write(t *testing.T, l *state.Local, w state.Write) {
	t.Helper()
	results, err := l.Write(t.Context(), state.Each, w)
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Relaxed changes are synced by the next other change, or within relaxedTime.
func TestRelaxedChangesNeedNoSyncOfTheirOwn(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir()})
	write(t, l, machine("web"))
	before, began := l.Syncs(), time.Now()
	for i := range 50 {
		write(t, l, status("web", fmt.Sprintf("%d %%", i), true))
		if err := l.Record(t.Context(), state.Event{Object: state.ID{Kind: "machine", Name: "web"}, Reason: "Step"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Syncs() - before; n > 1+int64(time.Since(began)/state.RelaxedTime) {
		t.Errorf("%d syncs for 100 relaxed changes", n)
	}
	wait(t, "the relaxed changes to be synced", func() bool { return l.Syncs() > before })
	write(t, l, status("web", "last", true))
	before = l.Syncs()
	for range 3 {
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Syncs() - before; n < 1 {
		t.Errorf("%d syncs after Sync", n)
	}
}

// A relaxed change that another change's sync made durable needs no sync of its
// own later.
func TestRelaxedChangesAreSyncedOnce(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir()})
	write(t, l, machine("web"))
	before := l.Syncs()
	const pairs = 20
	for i := range pairs {
		write(t, l, status("web", fmt.Sprint("relaxed ", i), true))
		write(t, l, status("web", fmt.Sprint("durable ", i), false))
	}
	write(t, l, status("web", "last", true))
	wait(t, "the last change to be synced", func() bool { return l.Syncs() > before+pairs })
	write(t, l, status("web", "after", true))
	wait(t, "the change after it to be synced", func() bool { return l.Syncs() > before+pairs+1 })
	if n := l.Syncs() - before; n > pairs+2 {
		t.Errorf("%d syncs for %d durable changes and two relaxed ones", n, pairs)
	}
	before = l.Syncs()
	for range 3 {
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Syncs() - before; n != 0 {
		t.Errorf("%d syncs of a store without relaxed changes", n)
	}
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// A power cut takes back the relaxed changes since the last sync and nothing
// else; the store is not taken for an older copy. The write-ahead log of the
// disk ends at its last sync at the latest.
func TestAPowerCutLosesOnlyRelaxedChanges(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, state.Options{Dir: dir})
	write(t, l, machine("web"))
	write(t, l, status("web", "on the way", true))
	write(t, l, status("web", "durable", false))
	synced := size(t, filepath.Join(dir, "state.db-wal"))
	write(t, l, status("web", "relaxed", true))
	if err := l.Record(t.Context(), state.Event{Object: state.ID{Kind: "machine", Name: "web"}, Reason: "Relaxed"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lost bool
		want string
	}{"cut": {true, `{"message":"durable"}`}, "crash": {false, `{"message":"relaxed"}`}} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir()
			if err := os.Chmod(to, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"state.db", "state.db-wal", "store-id", "store-mark"} {
				b, err := os.ReadFile(filepath.Join(dir, f))
				if err != nil {
					t.Fatal(err)
				}
				if c.lost && f == "state.db-wal" {
					b = b[:synced]
				}
				if err := os.WriteFile(filepath.Join(to, f), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			after, report := open(t, state.Options{Dir: to})
			if report.Rebuilt || report.Quarantined != "" {
				t.Fatalf("the store counts as lost: %+v", report)
			}
			o, err := after.Get(t.Context(), state.ID{Kind: "machine", Name: "web"})
			if err != nil {
				t.Fatal(err)
			}
			if string(o.Status) != c.want {
				t.Errorf("status %s, want %s", o.Status, c.want)
			}
		})
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A call with one write that is not relaxed is durable as a whole; a closed store
// syncs nothing.
func TestOneDurableWriteMakesTheCallDurable(t *testing.T) {
	l, _ := open(t, state.Options{Dir: t.TempDir()})
	write(t, l, machine("web"))
	before := l.Syncs()
	if _, err := l.Write(t.Context(), state.Atomic, status("web", "a", true), machine("db")); err != nil {
		t.Fatal(err)
	}
	if l.Syncs() != before+1 {
		t.Errorf("%d syncs", l.Syncs()-before)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context()); !fault.Is(err, fault.NotReady) {
		t.Errorf("a closed store: %v", err)
	}
}
