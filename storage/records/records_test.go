package records

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hostler/internal/fault"
)

type entry struct {
	Size int `json:"size"`
}

func TestRecordsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "down")
	f := In[entry](dir)
	if ids, err := f.IDs(); err != nil || len(ids) != 0 {
		t.Errorf("%v, %v", ids, err)
	}
	if _, found, err := f.Get("a"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	for _, id := range []string{"b", "a"} {
		if err := f.Put(id, entry{Size: len(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".c.json.hostler-tmp", "C.json", "a.img", "..json"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := f.IDs(); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("%v, %v", ids, err)
	}
	if got, found, err := f.Get("a"); !found || err != nil || got.Size != 1 {
		t.Errorf("%v, %v, %v", got, found, err)
	}
	for range 2 {
		if err := f.Remove("a"); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"../a", "", "A"} {
		if _, _, err := f.Get(id); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// Get returns the record that another agent wrote, even after cached reads.
func TestRecordsOfAnotherAgentAreRead(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := In[entry](dir), In[entry](dir)
	for n := range 100 {
		if err := theirs.Put("a", entry{Size: n % 10}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, found, err := ours.Get("a"); !found || err != nil || got.Size != n%10 {
				t.Fatalf("%d: %v, %v, %v", n, got, found, err)
			}
		}
	}
	if err := theirs.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, found, err := ours.Get("a"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// A malformed record needs the operator; it is not treated as absent. Symbolic
// links are not followed.
func TestDamagedRecords(t *testing.T) {
	f := In[entry](t.TempDir())
	for _, text := range []string{"", "{", "[]", `{"size": "x"}`, `{"other": 1}`, `{"size": 1} {"size": 2}`} {
		if err := os.WriteFile(f.path("a"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Get("a"); !fault.Is(err, fault.NeedsOperator) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Symlink(f.path("a"), f.path("link")); err != nil {
		t.Fatal(err)
	}
	if _, found, err := f.Get("link"); found || err == nil {
		t.Errorf("%v, %v", found, err)
	}
}
