package conffiles

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
)

// I16: a file of conf.d that is being written changes and removes nothing,
// however long the write takes. When it is closed, it is applied whole.
func TestHalfWrittenFilesAreNotApplied(t *testing.T) {
	clock := time.Now()
	a := newConfd(t, func(o *Options) { o.Now = func() time.Time { return clock } })
	dir := a.o.Dir
	file := filepath.Join(dir, "web.yaml")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const half, rest = "version: 1\nmachines:\n  a: {type: lxd, image: debian/12}\n", "  b: {type: lxd, image: debian/12}\n"
	if err := os.WriteFile(file, []byte(half+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "old.yaml"), document("old"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, a) }()
	read := func() []string { a.mu.Lock(); defer a.mu.Unlock(); return slices.Clone(a.read) }
	eventually(t, "the file as it is at first", func() bool { return len(read()) > 0 })

	writer, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString(half); err != nil {
		t.Fatal(err)
	}
	eventually(t, "word that it is being written", func() bool { return strings.Contains(a.told(), "web.yaml is not applied yet: it is being written") })
	// A deleted file does not count as removed yet, since its declaration may be
	// in the file that is being written.
	if err := os.Remove(filepath.Join(dir, "old.yaml")); err != nil {
		t.Fatal(err)
	}
	long := clock.Add(-goneFor)
	gone := &folderReader{d: a.Declarations, dir: dir, since: long, missing: map[string]time.Time{filepath.Join(dir, "old.yaml"): long}}
	a.apply(t, gone)
	if alive, _ := a.lives(t); !slices.Equal(alive, []string{"a", "b", "old"}) {
		t.Errorf("machines %v", alive)
	}
	// The other files are not applied repeatedly meanwhile, and a change during an
	// apply is not lost.
	other := filepath.Join(dir, "other.yaml")
	change := func(to string) {
		if err := os.WriteFile(other, []byte(half+rest+to), 0o600); err != nil {
			t.Error(err)
		}
	}
	a.mu.Lock()
	a.during = func(path string) {
		if path == other {
			a.during = nil
			change("  e: {type: lxd, image: debian/13}\n")
		}
	}
	a.mu.Unlock()
	change("  d: {type: lxd, image: debian/13}\n")
	eventually(t, "what changed meanwhile", func() bool { return slices.Contains(read(), half+rest+"  e: {type: lxd, image: debian/13}\n") })
	r := round{before: stampsOf(dir), written: []string{file}}
	eventually(t, "a round without a change", func() bool {
		before := len(read())
		for until := time.Now().Add(3 * whileWritten); time.Now().Before(until); time.Sleep(whileWritten / 10) {
			if !r.waits(dir, time.Now()) {
				t.Error("a round is due although nothing has changed")
			}
		}
		return len(read()) == before
	})
	if r.due = time.Now(); r.waits(dir, r.due) {
		t.Error("what is to be tried again is not")
	}
	if _, err := writer.WriteString(rest + "  c: {type: lxd, image: debian/12}\n"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the whole file", func() bool { return slices.Contains(read(), half+rest+"  c: {type: lxd, image: debian/12}\n") })
	eventually(t, "the end of the word", func() bool { return a.told() == "" })
	a.apply(t, gone)
	if alive, _ := a.lives(t); slices.Contains(alive, "old") {
		t.Errorf("machines %v: the file of one is gone for good", alive)
	}
	for _, content := range read() {
		if content != document("old") && !strings.HasPrefix(content, half+rest) {
			t.Errorf("applied half-written:\n%s", content)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A configuration that is being written changes nothing; an agent that starts
// waits for it.
func TestHalfWrittenConfigurationIsNotUsed(t *testing.T) {
	c := &Configuration{Path: filepath.Join(t.TempDir(), "hostler.yaml"), Notice: func(string, string) {}, Logger: slog.New(slog.DiscardHandler), Now: time.Now}
	writer, err := os.Create(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("concurrency: 9\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read(); !errors.Is(err, errBeingWritten) {
		t.Errorf("read: %v", err)
	}
	begun := make(chan spec.Config, 1)
	go func() {
		config, err := c.Await(t.Context())
		if err != nil {
			t.Error(err)
		}
		begun <- config
	}()
	if _, err := writer.WriteString("harvest: none\n"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if config := <-begun; config.Harvest != "none" || config.Concurrency != 9 {
		t.Errorf("%+v", config)
	}
}

// However a file is written and read in place, each read returns a whole file.
func TestReadersSeeWholeFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	part := strings.Repeat("x", 8192)
	write := func() error {
		w, err := os.Create(file)
		if err != nil {
			return err
		}
		for range 4 {
			if _, err := w.WriteString(part); err != nil {
				return err
			}
		}
		return w.Close()
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		for range 300 {
			if err := write(); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	whole := 0
	for {
		content, err := readWhole(file, maxDeclaration)
		switch {
		case errors.Is(err, errBeingWritten):
		case err != nil || len(content) != 4*len(part):
			t.Fatalf("%d bytes, %v", len(content), err)
		default:
			whole++
		}
		select {
		case err := <-written:
			if err != nil || whole == 0 {
				t.Errorf("%d reads, %v", whole, err)
			}
			return
		default:
		}
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}
