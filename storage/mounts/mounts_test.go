package mounts_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

func TestOptions(t *testing.T) {
	bits, data, err := mounts.Options([]string{"noatime", "nosuid", "commit=5", "discard", "defaults"})
	if err != nil || bits != unix.MS_NOATIME|unix.MS_NOSUID || data != "commit=5,discard" {
		t.Errorf("%x %q %v", bits, data, err)
	}
	if bits, _, _ := mounts.Options([]string{"ro", "rw"}); bits != 0 {
		t.Errorf("the last one counts: %x", bits)
	}
	for _, wrong := range []string{"", "a,b", "a b", "a\x00", "loop", "loop=/dev/loop1", "bind", "remount", "move", "x-mount.mkdir", "X-a", "nofail", "user", "auto", "comment=x"} {
		if _, _, err := mounts.Options([]string{wrong}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A process holds a filesystem by its working directory, an open file or a
// mapped file.
func TestHolders(t *testing.T) {
	dir := t.TempDir()
	// Only this test's own directory has a distinct device number; a fake /proc
	// covers the other cases.
	proc := t.TempDir()
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil {
		t.Fatal(err)
	}
	for pid, links := range map[string]map[string]string{
		"10": {"cwd": dir}, "20": {"fd/3": filepath.Join(dir, "file")}, "30": {"cwd": "/proc"},
	} {
		at := filepath.Join(proc, pid)
		must(t, os.MkdirAll(filepath.Join(at, "fd"), 0o755))
		must(t, os.WriteFile(filepath.Join(at, "comm"), []byte("program"+pid+"\n"), 0o644))
		for name, target := range links {
			must(t, os.Symlink(target, filepath.Join(at, name)))
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	got := mounts.Holders(proc, mounts.Used{FS: s.Dev})
	want := []storage.Holder{{PID: 10, Command: "program10", Path: dir}, {PID: 20, Command: "program20", Path: filepath.Join(dir, "file")}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Z24: the wait ends with the holder, without retries in between.
func TestWaitHolders(t *testing.T) {
	holder := exec.Command("/bin/sleep", "600")
	must(t, holder.Start())
	holders := []storage.Holder{{PID: os.Getpid()}, {PID: holder.Process.Pid}}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := mounts.WaitHolders(short, holders); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	must(t, holder.Process.Kill())
	if err := mounts.WaitHolders(t.Context(), holders); err != nil {
		t.Error(err)
	}
	_ = holder.Wait()
	if err := mounts.WaitHolders(t.Context(), holders); err != nil {
		t.Errorf("of one that is gone: %v", err)
	}
}

func TestMountPointsDoNotFollowLinks(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("/etc", filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for path, kind := range map[string]fault.Kind{"link": fault.NeedsOperator, "link/ssh": fault.NeedsOperator, "../x/..": fault.Invalid} {
		if _, err := mounts.OpenPoint(dir + "/" + path); !fault.Is(err, kind) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := mounts.OpenPoint(filepath.Join(dir, "file")); err == nil {
		t.Error("a file was taken for a folder")
	}
	point, err := mounts.OpenPoint(filepath.Join(dir, "new"))
	must(t, err)
	defer point.Close()
	must(t, point.Empty())
	must(t, os.WriteFile(filepath.Join(dir, "new/x"), nil, 0o600))
	if err := point.Empty(); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("got %v", err)
	}
	point.GiveUp()
	if _, err := os.Stat(filepath.Join(dir, "new/x")); err != nil {
		t.Error(err)
	}
}
