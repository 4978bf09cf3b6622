package lxctest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hostler/internal/run"
)

// Folder is liblxc's folder of instances for a test that uses the driver without
// an agent, in the machine's own namespaces.
type Folder struct {
	// Dir holds everything, Path is the folder of instances inside.
	Dir, Path string
}

// NewFolder makes a folder, which is removed at the test's end. With a size, e.g. 2G, it has
// a btrfs pool with quota where the driver of the namespace expects one.
func NewFolder(t testing.TB, namespace, size string) *Folder {
	t.Helper()
	// Guests' root must be able to enter the folder, and its path must be short.
	dir, err := os.MkdirTemp("/var/tmp", "lxt") //nolint:usetesting // see above
	must(t, err)
	f := &Folder{Dir: dir, Path: filepath.Join(dir, "lxc")}
	t.Cleanup(func() { f.remove(t, namespace) })
	must(t, errors.Join(os.Chmod(dir, 0o711), os.Mkdir(f.Path, 0o711)))
	if size != "" {
		pool := filepath.Join(f.Path, "."+namespace, "pool")
		must(t, errors.Join(os.MkdirAll(pool, 0o711), os.Chmod(filepath.Dir(pool), 0o711)))
		for _, command := range [][]string{
			{"truncate", "-s", size, pool + ".img"},
			{"mkfs.btrfs", "-q", pool + ".img"},
			{"mount", "-o", "loop", pool + ".img", pool},
			{"btrfs", "quota", "enable", pool},
		} {
			host(t, command...)
		}
		t.Cleanup(func() { host(t, "umount", pool) })
	}
	return f
}

// remove removes the files, and the cgroup that the last monitor leaves at its
// end.
func (f *Folder) remove(t testing.TB, namespace string) {
	t.Helper()
	left, _ := filepath.Glob("/sys/fs/cgroup/*/lxc.pivot." + namespace)
	more, _ := filepath.Glob("/sys/fs/cgroup/lxc.pivot." + namespace)
	for _, dir := range append(left, more...) {
		for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if _ = syscall.Rmdir(dir + "/lxc.pivot"); !errors.Is(syscall.Rmdir(dir), syscall.EBUSY) {
				break
			}
		}
	}
	const locks = "/run/lxc/lock"
	must(t, errors.Join(os.RemoveAll(f.Dir), os.RemoveAll(locks+f.Dir)))
	for dir := filepath.Dir(locks + f.Dir); dir != locks; dir = filepath.Dir(dir) {
		_ = syscall.Rmdir(dir) // another test may use it
	}
}

func host(t testing.TB, command ...string) {
	t.Helper()
	out, err := run.Host{}.Run(context.Background(), run.Command{Path: "/usr/bin/env", Args: command, Timeout: waitLimit})
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out.Stderr)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
