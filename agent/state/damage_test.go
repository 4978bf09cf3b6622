package state_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// damagedStore is the contents of a store and its files.
type damagedStore struct {
	files   map[string][]byte
	objects string
}

// newDamagedStore creates a store, lets edit work on it and copies its files
// while it is open (the state after a crash) or after it was closed.
func newDamagedStore(t *testing.T, open bool, edit func(*state.Local)) damagedStore {
	t.Helper()
	dir := hosttest.MemoryDir(t)
	l, report, err := state.Open(t.Context(), state.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Fresh || report.Rebuilt {
		t.Fatalf("a new store: %+v", report)
	}
	edit(l)
	w := damagedStore{objects: contents(t, l)}
	if open {
		w.files = readDir(t, dir)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !open {
		w.files = readDir(t, dir)
	}
	return w
}

func readDir(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != "lock" {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[e.Name()] = b
		}
	}
	return files
}

// put writes the files to a new directory.
func (w damagedStore) put(t testing.TB) string {
	t.Helper()
	dir := hosttest.MemoryDir(t)
	for name, b := range w.files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func contents(t testing.TB, l *state.Local) string {
	t.Helper()
	objects, _, err := l.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	intents, err := l.Intents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal([]any{objects, intents})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fill creates some machines, changes some and removes some.
func fill(t testing.TB, l *state.Local, prefix string, n int) {
	t.Helper()
	for i := range n {
		id := state.ID{Kind: "machine", Name: fmt.Sprintf("%s%d", prefix, i)}
		_, err := l.Write(t.Context(), state.Atomic, state.Write{ID: id, Spec: fmt.Appendf(nil, `{"image":"debian/12","n":%d}`, i)})
		if err == nil {
			_, err = l.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: state.AnyRevision, Status: []byte(`{"state":"running"}`)})
		}
		if err == nil && i%5 == 4 {
			_, err = l.Write(t.Context(), state.Atomic, state.Write{ID: id, Revision: state.AnyRevision, Delete: true})
		}
		if err == nil {
			err = l.Begin(t.Context(), state.Intent{Token: id.Name, Object: id, Action: "create"})
		}
		if err == nil {
			err = l.Record(t.Context(), state.Event{Object: id, Reason: "Created", Message: strings.Repeat("m", 50)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func smallWorld(t *testing.T) damagedStore {
	return newDamagedStore(t, false, func(l *state.Local) { fill(t, l, "m", 40) })
}

// survive opens a damaged directory. All records must exist, or the report must
// say Rebuilt, or a newer schema must be refused. It returns whether the
// records exist.
func (w damagedStore) survive(t testing.TB, what, dir string) (whole bool, report state.OpenReport) {
	t.Helper()
	l, report, err := state.Open(context.Background(), state.Options{Dir: dir})
	if err != nil {
		if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v", what, err)
		}
		return false, report
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
	}()
	whole = contents(t, l) == w.objects
	if !whole && !report.Rebuilt {
		t.Errorf("%s: records were lost or changed and the report says %+v", what, report)
	}
	if report.Rebuilt != (report.Reason != "") || report.Fresh {
		t.Errorf("%s: report %+v", what, report)
	}
	return whole, report
}

// flip changes a byte of the database and opens it.
func (w damagedStore) flip(t testing.TB, dir string, at int, by byte) {
	t.Helper()
	b := bytes.Clone(w.files["state.db"])
	b[at] ^= by
	w.reset(t, dir, b)
	w.survive(t, fmt.Sprintf("byte %d ^ %#x", at, by), dir)
}

// reset restores the database and its identity in a used directory.
func (w damagedStore) reset(t testing.TB, dir string, db []byte) {
	t.Helper()
	for _, name := range []string{"state.db-wal", "state.db-shm", "quarantine"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range w.files {
		if name == "state.db" {
			b = db
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const pageSize = 4096

// Attack: store
func TestFlippedBytesNeverLoseRecordsSilently(t *testing.T) {
	t.Parallel()
	w := smallWorld(t)
	dir := w.put(t)
	size := len(w.files["state.db"])
	if size < 8*pageSize {
		t.Fatalf("the store has only %d bytes", size)
	}
	// A sample of pages 0 to 3; the first 100 bytes are the file's header.
	for at := 0; at < 4*pageSize; at += 97 {
		w.flip(t, dir, at, 0xff)
	}
	for _, at := range []int{16, 18, 19, 20, 28, 31, 44, 47, 56, 60, 62, 63, 68, 96, 100, 103, 105} {
		w.flip(t, dir, at, 0x01)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		w.flip(t, dir, rnd.IntN(size), byte(1+rnd.IntN(255)))
	}
}

// Attack: store
func TestTruncatedStoreIsLost(t *testing.T) {
	t.Parallel()
	w := smallWorld(t)
	dir := w.put(t)
	db := w.files["state.db"]
	for at := 512; at < len(db); at += 512 * 7 {
		w.reset(t, dir, db[:at])
		w.survive(t, fmt.Sprintf("cut at %d", at), dir)
	}
}

// Attack: store
func TestCutLogIsNoticed(t *testing.T) {
	t.Parallel()
	w := newDamagedStore(t, true, func(l *state.Local) { fill(t, l, "m", 10) })
	wal := w.files["state.db-wal"]
	if len(wal) == 0 {
		t.Fatal("the log is empty")
	}
	if whole, report := w.survive(t, "whole log", w.put(t)); !whole || report.Rebuilt {
		t.Errorf("after a crash: whole %v, %+v", whole, report)
	}
	for i := range 12 {
		dir := w.put(t)
		path := filepath.Join(dir, "state.db-wal")
		if i == 0 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Truncate(path, int64(len(wal)*i/12)); err != nil {
			t.Fatal(err)
		}
		w.survive(t, fmt.Sprintf("log cut to %d/12", i), dir)
	}
}
