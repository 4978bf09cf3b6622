//go:build integration

package loop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/loop"
	"hostler/storage/storagetest"
)

const mib = storagetest.MiB

func ref(id string) storage.Ref {
	return storage.Ref{ID: id, Stamp: storage.Stamp{Namespace: "one", UID: "uid-" + id}}
}

func create(s *loop.Source, r storage.Ref, size int64, sparse bool) error {
	return s.Create(context.Background(), []storage.VolumeParams{{Ref: r, Size: size, Sparse: sparse}})[0].Err
}

func attach(s *loop.Source, r storage.Ref) (storage.VolumeAttachment, error) {
	got := s.Attach(context.Background(), []storage.VolumeAttachParams{{Ref: r}})[0]
	return got.Value, got.Err
}

func detach(s *loop.Source, r storage.Ref) error {
	return s.Detach(context.Background(), []storage.DetachParams{{Ref: r}})[0]
}

func destroy(s *loop.Source, r storage.Ref) error {
	return s.Destroy(context.Background(), []storage.Ref{r})[0]
}

// volume makes a volume that is removed when the test ends.
func volume(t *testing.T, s *loop.Source, r storage.Ref, size int64, sparse bool) {
	t.Helper()
	t.Cleanup(func() {
		if err := errors.Join(detach(s, r), destroy(s, r)); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	must(t, create(s, r, size, sparse))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func describe(t *testing.T, s *loop.Source, r storage.Ref) storage.Volume {
	t.Helper()
	got := s.DescribeVolumes(t.Context(), []storage.Ref{r})[0]
	must(t, got.Err)
	return got.Value
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// V4, Z2: a failed attachment never changes the data, and the next attempt
// succeeds. Here the directory of device nodes has no loop devices and none can
// be made.
func TestFailedAttachKeepsTheData(t *testing.T) {
	dir, dev := filepath.Join(t.TempDir(), "volumes"), storagetest.Host(t, "tmpfs", mib)
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, mib, false)
	must(t, os.WriteFile(filepath.Join(dir, "data.img"), []byte("kept"), 0o600))
	must(t, os.Truncate(filepath.Join(dir, "data.img"), mib))
	must(t, unix.Mknod(filepath.Join(dev, "loop-control"), unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))))
	must(t, unix.Mount("", dev, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	sys := t.TempDir()
	must(t, os.Mkdir(filepath.Join(sys, "block"), 0o700))
	without := loop.New(loop.Options{Dir: dir, Namespace: "one", Dev: dev, Sys: sys})
	for range 3 {
		if _, err := attach(without, r); err == nil {
			t.Fatal("attached without a device")
		}
	}
	if v := describe(t, s, r); v.Problem != "" || len(v.Attachments) != 0 {
		t.Errorf("%+v", v)
	}
	a, err := attach(s, r)
	must(t, err)
	f, err := os.Open(a.Device)
	must(t, err)
	defer f.Close()
	head := make([]byte, 4)
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != "kept" {
		t.Errorf("read %q, %v", head, err)
	}
	must(t, f.Close())
}

// Detach detaches every device of the file, also devices that another process
// set up.
func TestEveryAssociationIsDetached(t *testing.T) {
	dir := t.TempDir()
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, mib, false)
	a, err := attach(s, r)
	must(t, err)
	must(t, exec.Command("losetup", "-f", "-r", filepath.Join(dir, "data.img")).Run())
	v := describe(t, s, r)
	if len(v.Attachments) != 2 {
		t.Fatalf("%+v", v)
	}
	if again, err := attach(s, r); err != nil || again != a {
		t.Errorf("attached as %+v, then %+v, %v", a, again, err)
	}
	must(t, detach(s, r))
	if v := describe(t, s, r); len(v.Attachments) != 0 {
		t.Errorf("%+v", v)
	}
}

// If the file was deleted, the volume reports the problem, its device still
// works and can be detached, and no new file is made automatically.
func TestBackingFileDeletedByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, mib, false)
	a, err := attach(s, r)
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "data.img")))
	v := describe(t, s, r)
	rescue := "`sync && cp --sparse=always " + a.Device + " " + filepath.Join(dir, "data.img") + "`"
	if !strings.Contains(v.Problem, "was removed outside hostler") || !strings.Contains(v.Problem, rescue) || !v.Unlinked || len(v.Attachments) != 1 || v.Attachments[0] != a {
		t.Errorf("%+v", v)
	}
	if _, err := attach(s, r); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("attached: %v", err)
	}
	must(t, detach(s, r))
	if v := describe(t, s, r); len(v.Attachments) != 0 {
		t.Errorf("%+v", v)
	}
	must(t, destroy(s, r))
}

// A truncated file is not attached, so that no guest reads zeros.
func TestFileCutShort(t *testing.T) {
	dir := t.TempDir()
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, 2*mib, false)
	must(t, os.Truncate(filepath.Join(dir, "data.img"), mib))
	if _, err := attach(s, r); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("attached: %v", err)
	}
	if v := describe(t, s, r); !strings.Contains(v.Problem, "cut") {
		t.Errorf("%+v", v)
	}
}

// Foreign files are not used, and symbolic links are not followed.
func TestForeignFiles(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	s := source(dir, "one")
	must(t, os.WriteFile(outside, []byte("keep"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "foreign.img"), []byte("keep"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "link.img")))
	must(t, os.Symlink(outside, filepath.Join(dir, "temp.img.hostler-tmp")))
	for _, id := range []string{"foreign", "link", "temp"} {
		if err := create(s, ref(id), mib, false); err == nil {
			t.Errorf("%s was made", id)
		}
		if _, err := attach(s, ref(id)); err == nil {
			t.Errorf("%s was attached", id)
		}
		_ = destroy(s, ref(id))
	}
	for _, path := range []string{outside, filepath.Join(dir, "foreign.img")} {
		if got, err := os.ReadFile(path); err != nil || string(got) != "keep" {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
}

// If the allocation itself fails with ENOSPC, because there is no reserve and
// another process fills the filesystem meanwhile, no file is left.
func TestNoSpace(t *testing.T) {
	for _, host := range storagetest.Hosts {
		t.Run(host, func(t *testing.T) {
			dir := storagetest.Host(t, host, 64*mib)
			filler := filepath.Join(dir, "filler")
			s := loop.New(loop.Options{Dir: filepath.Join(dir, "volumes"), Namespace: "one", Reserve: func(int64) int64 {
				// Reserve is called between the check of the space and the
				// allocation.
				var st unix.Statfs_t
				must(t, unix.Statfs(dir, &st))
				f, err := os.Create(filler)
				must(t, err)
				defer f.Close()
				_ = unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Frsize-16*mib)
				return 0
			}})
			err := create(s, ref("data"), 32*mib, false)
			if !errors.Is(err, unix.ENOSPC) || fault.KindOf(err) != fault.Transient {
				t.Errorf("got %v", err)
			}
			if left := entries(t, filepath.Join(dir, "volumes")); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
			must(t, os.Remove(filler))
		})
	}
}

// Volumes that are made or grown at once leave the host its reserve together.
func TestReserveOfVolumesAtOnce(t *testing.T) {
	const reserve = 32 * mib
	for what, test := range map[string]struct {
		volumes   int
		has, size int64 // before and after; 0 if the volume is made
	}{
		"made":  {16, 0, 4 * mib},
		"grown": {4, 4 * mib, 12 * mib},
	} {
		t.Run(what, func(t *testing.T) {
			dir := storagetest.Host(t, "tmpfs", 64*mib)
			s := loop.New(loop.Options{Dir: filepath.Join(dir, "volumes"), Namespace: "one", Reserve: func(int64) int64 {
				for range 1000 { // between the look at the space and the allocation
					runtime.Gosched()
				}
				return reserve
			}})
			var refs []storage.Ref
			for i := range test.volumes {
				refs = append(refs, ref(fmt.Sprintf("data%d", i)))
				if test.has > 0 {
					must(t, create(s, refs[i], test.has, false))
				}
			}
			var all sync.WaitGroup
			for _, r := range refs {
				all.Go(func() { // some fail
					if test.has > 0 {
						_ = s.GrowVolumes(context.Background(), []storage.GrowParams{{Ref: r, Size: test.size}})
					} else {
						_ = create(s, r, test.size, false)
					}
				})
			}
			all.Wait()
			var st unix.Statfs_t
			must(t, unix.Statfs(dir, &st))
			// The records take some of the reserve.
			if free := int64(st.Bavail) * st.Frsize; free < reserve-mib || free >= reserve+test.size-test.has {
				t.Errorf("%s stay free", storage.Bytes(free))
			}
			for _, r := range refs {
				must(t, destroy(s, r))
			}
		})
	}
}

// EIO of a sparse volume on a full host filesystem: Space warns before, and the
// volume survives and works again once there is space.
func TestFullHostGivesErrorsAndRecovers(t *testing.T) {
	dir := storagetest.Host(t, "tmpfs", 16*mib)
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, 12*mib, true)
	a, err := attach(s, r)
	must(t, err)
	filler := filepath.Join(dir, "filler")
	must(t, os.WriteFile(filler, make([]byte, 15*mib), 0o600))
	space, err := s.Space(t.Context())
	must(t, err)
	if space.Promised < 11*mib || space.Warning() == "" {
		t.Errorf("%+v: %q", space, space.Warning())
	}
	write := func() error {
		f, err := os.OpenFile(a.Device, os.O_WRONLY, 0)
		must(t, err)
		defer f.Close()
		_, err = f.WriteAt(make([]byte, 8*mib), 0)
		return errors.Join(err, f.Sync())
	}
	if err := write(); !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(filler))
	if err := write(); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// On a read-only host filesystem errors are accurate, no data is lost, and
// attaching read-only still works.
func TestReadOnlyHost(t *testing.T) {
	dir := storagetest.Host(t, "ext4", 64*mib)
	s, r := source(filepath.Join(dir, "volumes"), "one"), ref("data")
	volume(t, s, r, mib, false)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	t.Cleanup(func() { must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "")) })
	_, attached := attach(s, r)
	for what, err := range map[string]error{
		"create": create(s, ref("more"), mib, false), "attach": attached, "destroy": destroy(s, r),
		"grow": s.GrowVolumes(t.Context(), []storage.GrowParams{{Ref: r, Size: 2 * mib}})[0].Err,
	} {
		if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: %v", what, err)
		}
	}
	got := s.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r, ReadOnly: true}})[0]
	must(t, got.Err)
	must(t, detach(s, r))
	if v := describe(t, s, r); v.Problem != "" {
		t.Errorf("%+v", v)
	}
}

// Three agents with different directories attach devices in parallel: no device
// is lost, shared or taken from another agent.
func TestRacingAttachers(t *testing.T) {
	const racers, each = 3, 86
	var wg sync.WaitGroup
	var mu sync.Mutex
	devices := map[string]string{}
	top := t.TempDir()
	for n := range racers {
		namespace := fmt.Sprintf("racer%d", n)
		wg.Go(func() {
			s := source(filepath.Join(top, namespace), namespace)
			for i := range each {
				r := storage.Ref{ID: fmt.Sprintf("v%d", i), Stamp: storage.Stamp{Namespace: namespace, UID: "u"}}
				if err := create(s, r, mib, true); err != nil {
					t.Error(err)
				}
				a, err := attach(s, r)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if other := devices[a.Device]; other != "" {
					t.Errorf("%s was given to %s and %s", a.Device, other, namespace)
				}
				devices[a.Device] = namespace + r.ID
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(devices) != racers*each {
		t.Errorf("%d devices", len(devices))
	}
	for n := range racers {
		namespace := fmt.Sprintf("racer%d", n)
		wg.Go(func() {
			s := source(filepath.Join(top, namespace), namespace)
			all, err := s.List(context.Background())
			if err != nil || len(all) != each {
				t.Errorf("%d volumes, %v", len(all), err)
			}
			for _, v := range all {
				if len(v.Attachments) != 1 || devices[v.Attachments[0].Device] != namespace+v.ID {
					t.Errorf("%+v", v)
				}
				if err := errors.Join(detach(s, v.Ref), destroy(s, v.Ref)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// An allocated volume stays allocated, whatever its user discards.
func TestDiscardKeepsTheAllocation(t *testing.T) {
	dir := t.TempDir()
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, 8*mib, false)
	a, err := attach(s, r)
	must(t, err)
	_ = exec.Command("blkdiscard", "-f", a.Device).Run()
	if v := describe(t, s, r); v.Allocated < v.Size {
		t.Errorf("%d of %d bytes are allocated", v.Allocated, v.Size)
	}
}

// Another agent's device that this process may not open, e.g. in a container,
// does not disturb others; a device with our own data is an error.
func TestDevicesOutOfReach(t *testing.T) {
	dir, dev, sys := filepath.Join(t.TempDir(), "volumes"), storagetest.Host(t, "tmpfs", mib), t.TempDir()
	volume(t, source(dir, "one"), ref("data"), mib, false)
	must(t, unix.Mount("", dev, "", unix.MS_REMOUNT|unix.MS_NODEV, "")) // opening devices there is refused
	must(t, unix.Mknod(filepath.Join(dev, "loop7"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 7))))
	behind := filepath.Join(sys, "block/loop7/loop")
	must(t, os.MkdirAll(behind, 0o700))
	s := loop.New(loop.Options{Dir: dir, Namespace: "one", Dev: dev, Sys: sys})
	for _, c := range []struct{ file, err string }{
		{"/var/lib/other/disk.img", ""},
		{filepath.Join(dir, "data.img"), "cannot look at loop7"},
	} {
		must(t, os.WriteFile(filepath.Join(behind, "backing_file"), []byte(c.file+"\n"), 0o600))
		all, err := s.List(t.Context())
		switch {
		case c.err == "" && (err != nil || len(all) != 1 || len(all[0].Attachments) != 0):
			t.Errorf("%s: %+v, %v", c.file, all, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %+v, %v", c.file, all, err)
		}
	}
}
