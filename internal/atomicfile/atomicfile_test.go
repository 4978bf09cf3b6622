package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteReplacesContentAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, step := range []struct {
		data string
		mode os.FileMode
	}{{"one", 0o644}, {"two", 0o600}, {"", 0o640}} {
		if err := Write(path, []byte(step.data), step.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != step.data {
			t.Fatalf("read %q, %v; want %q", got, err, step.data)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != step.mode {
			t.Fatalf("mode %v, %v; want %v", info.Mode(), err, step.mode)
		}
	}
	onlyFile(t, path)
}

func TestWriteNeverFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	for _, link := range []string{path, tempName(path)} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(outside); string(got) != "keep" {
		t.Fatalf("the link's target was written: %q", got)
	}
	if info, _ := os.Lstat(path); !info.Mode().IsRegular() {
		t.Fatalf("%v is no regular file", info.Mode())
	}
}

func TestHooksStandAroundTheRename(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, []byte("new"), 0o600, BeforeRename(func() error {
		if tmp, _ := os.ReadFile(tempName(path)); string(tmp) != "new" {
			t.Errorf("temporary file holds %q", tmp)
		}
		return broken
	}))
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Fatalf("the file holds %q after a failure before the rename", got)
	}
	onlyFile(t, path)
	err = Write(path, []byte("new"), 0o600, AfterRename(func() error { return broken }))
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Fatalf("the file holds %q after the rename", got)
	}
}

func TestRemoveTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Write(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func onlyFile(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Fatalf("left over: %v", entries)
	}
}
