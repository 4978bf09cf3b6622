package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler/agent/spec"
)

// If an agent ended just after a file disappeared, the next agent waits before
// it counts the file's declaration as removed.
func TestAFreshReaderWaitsForWhatMayComeBack(t *testing.T) {
	clock := time.Now()
	c := newConfd(t, func(h *host) { h.now = func() time.Time { return clock } })
	config := spec.DefaultConfig()
	config.Removals = spec.RemovalsObey
	if err := c.h.writeConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	dir := c.h.paths.ConfD()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "a.yaml"), document("a"))
	writeFile(t, filepath.Join(dir, "keep.yaml"), document("keep"))
	read := func(r *folderReader) { t.Helper(); c.apply(t, r) }
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	first := &folderReader{dir: dir, missing: map[string]time.Time{}}
	read(first)
	// The machine moves to a file that cannot be parsed, then both files go.
	writeFile(t, filepath.Join(dir, "b.yaml"), "version: 1\nmachine: {}\n")
	remove("a.yaml")
	for range 2 {
		read(first)
		clock = clock.Add(goneFor)
	}
	read(first)
	remove("b.yaml")
	again := &folderReader{dir: dir, missing: map[string]time.Time{}}
	read(again)
	if alive, held := c.lives(t); len(alive) != 2 || len(held) != 1 {
		t.Errorf("machines %v, held %v", alive, held)
	}
	clock = clock.Add(goneFor)
	read(again)
	if alive, _ := c.lives(t); len(alive) != 1 || alive[0] != "keep" {
		t.Errorf("machines %v once the file stayed away", alive)
	}
}
