//go:build integration && failpoint

package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/internal/failpoint"
	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/loop"
	"hostler/storage/managedfs"
	"hostler/storage/rootfs"
	"hostler/storage/storagetest"
	"hostler/storage/tmpfs"
)

// agent holds the four sources of an agent.
type agent struct {
	dir                   string
	volumes               *loop.Source
	managed, memory, part storage.FilesystemSource
	made                  int
}

func newAgent(dir string) *agent {
	a := &agent{dir: dir}
	at := func(name string) string { return filepath.Join(dir, name) }
	a.volumes = loop.New(loop.Options{Dir: at("volumes"), Namespace: "one"})
	a.managed = managedfs.New(managedfs.Options{Dir: at("managed"), Namespace: "one", Runner: a})
	a.memory = tmpfs.New(tmpfs.Options{Dir: at("tmpfs"), Namespace: "one"})
	a.part = rootfs.New(rootfs.Options{
		Dir:         at("first"),
		Volumes:     loop.New(loop.Options{Dir: at("parts"), Namespace: "one"}),
		Filesystems: managedfs.New(managedfs.Options{Dir: at("partfs"), Namespace: "one", Runner: run.Host{}}),
	})
	return a
}

// Run counts the mkfs calls for the managed filesystem.
func (a *agent) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if strings.HasPrefix(c.Name(), "mkfs.") {
		a.made++
	}
	return run.Host{}.Run(ctx, c)
}

var (
	dataRef    = storage.Ref{ID: "data", Stamp: storage.Stamp{Namespace: "one", UID: "u1"}}
	scratchRef = storage.Ref{ID: "scratch", Stamp: storage.Stamp{Namespace: "one", UID: "u2"}}
	logRef     = storage.Ref{ID: "log", Stamp: storage.Stamp{Namespace: "one", UID: "u3"}}
)

func (a *agent) path(r storage.Ref) string { return filepath.Join(a.dir, "mounts", r.ID) }

// up creates and attaches everything, from any state.
func (a *agent) up(ctx context.Context) error {
	if err := a.volumes.Create(ctx, []storage.VolumeParams{{Ref: dataRef, Size: 32 * mib}})[0].Err; err != nil {
		return err
	}
	attached := a.volumes.Attach(ctx, []storage.VolumeAttachParams{{Ref: dataRef}})[0]
	if attached.Err != nil {
		return attached.Err
	}
	for _, f := range []struct {
		source storage.FilesystemSource
		params storage.FilesystemParams
	}{
		{a.managed, storage.FilesystemParams{Ref: dataRef, Type: "ext4", Device: attached.Value.Device}},
		{a.memory, storage.FilesystemParams{Ref: scratchRef, Size: 4 * mib}},
		{a.part, storage.FilesystemParams{Ref: logRef, Size: 16 * mib}},
	} {
		if err := f.source.Create(ctx, []storage.FilesystemParams{f.params})[0].Err; err != nil {
			return err
		}
		at := storage.FilesystemAttachParams{Ref: f.params.Ref, Path: a.path(f.params.Ref), Device: f.params.Device}
		if err := f.source.Attach(ctx, []storage.FilesystemAttachParams{at})[0].Err; err != nil {
			return err
		}
	}
	return nil
}

// down detaches and destroys everything, from any state.
func (a *agent) down(ctx context.Context) error {
	var errs []error
	for source, r := range map[storage.FilesystemSource]storage.Ref{a.managed: dataRef, a.memory: scratchRef, a.part: logRef} {
		errs = append(errs, source.Detach(ctx, []storage.DetachParams{{Ref: r}})[0], source.Destroy(ctx, []storage.Ref{r})[0])
	}
	errs = append(errs, a.volumes.Detach(ctx, []storage.DetachParams{{Ref: dataRef}})[0], a.volumes.Destroy(ctx, []storage.Ref{dataRef})[0])
	return errors.Join(errs...)
}

// TestChild is an agent that dies half-way.
func TestChild(t *testing.T) {
	dir := os.Getenv("CHILD_DIR")
	if dir == "" {
		return // only for children
	}
	a := newAgent(dir)
	if err := a.up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.down(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// After a kill at each point, the next agent creates and attaches everything
// with its data intact, and then removes it without a trace; also when the host
// restarted in between.
func TestCrashPoints(t *testing.T) {
	for _, point := range []failpoint.Point{
		failpoint.LoopBackingCreated, failpoint.LoopHalfAllocated, failpoint.LoopNumberTaken, failpoint.LoopConfigured,
		failpoint.LoopAutoclear, failpoint.LoopDetaching, failpoint.LoopBackingDeleting, failpoint.MkfsRunning,
		failpoint.MkfsNotRecorded, failpoint.MountedNotRecorded, failpoint.Unmounting, failpoint.TmpfsMounted, failpoint.RootfsBound,
	} {
		for _, reboot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s reboot %v", point, reboot), func(t *testing.T) {
				dir := storagetest.Dir(t)
				a := newAgent(dir)
				t.Cleanup(func() { eventually(t, func() error { return a.down(context.Background()) }) })
				// Data that survives a crash during down was written before it.
				goingDown := point == failpoint.LoopDetaching || point == failpoint.Unmounting
				die(t, dir, point)
				if point == failpoint.LoopConfigured && len(a.devices(t)) != 0 {
					t.Errorf("a device outlived its agent: %q", a.devices(t))
				}
				if reboot {
					a.reboot(t)
				}
				eventually(t, func() error { return a.up(t.Context()) })
				if once := goingDown || point == failpoint.MkfsNotRecorded || point == failpoint.MountedNotRecorded; once && a.made != 0 {
					t.Errorf("the filesystem was made %d times more", a.made)
				}
				file := filepath.Join(a.path(dataRef), "file")
				if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := a.up(t.Context()); err != nil {
					t.Error(err)
				}
				if got, err := os.ReadFile(file); string(got) != "kept" {
					t.Errorf("read %q, %v", got, err)
				}
				eventually(t, func() error { return a.down(t.Context()) })
				a.nothingLeft(t)
			})
		}
	}
}

func die(t *testing.T, dir string, point failpoint.Point) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "hits")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestChild$")
	child.Env = append(os.Environ(), "CHILD_DIR="+dir, failpoint.PlanEnv+"="+string(point)+"=kill", failpoint.LogEnv+"="+log)
	output, err := child.CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v: %s", err, output)
	}
	if hits, _ := os.ReadFile(log); !strings.HasSuffix(string(hits), string(point)+"\n") {
		t.Fatalf("hit %q: %s", hits, output)
	}
}

// reboot removes all mounts and devices, like the end of a host.
func (a *agent) reboot(t *testing.T) {
	t.Helper()
	for _, m := range a.mounted(t) {
		// A mkfs process that outlived its agent is not a mount.
		if err := syscall.Unmount(m, 0); err != nil {
			t.Error(err)
		}
	}
	for _, device := range a.devices(t) {
		_ = exec.Command("losetup", "-d", device).Run()
	}
	eventually(t, func() error {
		if left := a.devices(t); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}

// mounted lists the mounts below the agent's directory, last first.
func (a *agent) mounted(t *testing.T) (paths []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, a.dir+"/") {
			paths = append([]string{path}, paths...)
		}
	}
	return paths
}

// devices lists the loop devices with a file below the agent's directory.
func (a *agent) devices(t *testing.T) (paths []string) {
	t.Helper()
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if data, _ := os.ReadFile(file); strings.HasPrefix(string(data), a.dir+"/") {
			paths = append(paths, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return paths
}

func (a *agent) nothingLeft(t *testing.T) {
	t.Helper()
	if left := append(a.mounted(t), a.devices(t)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	for _, name := range []string{"volumes", "managed", "tmpfs", "first", "parts", "partfs", "mounts"} {
		empty(t, filepath.Join(a.dir, name))
	}
}

// eventually retries while other processes, e.g. udev, hold devices.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
