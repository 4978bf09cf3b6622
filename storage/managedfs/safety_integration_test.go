//go:build integration

package managedfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/blockdevice"
	"hostler/storage/loop"
	"hostler/storage/managedfs"
	"hostler/storage/storagetest"
)

const mib = storagetest.MiB

// sizes are large enough for each type.
var sizes = map[string]int64{"ext4": 32 * mib, "xfs": 300 * mib, "btrfs": 128 * mib}

type bench struct {
	t       *testing.T
	dir     string
	volumes *loop.Source
	source  *managedfs.Source
}

func newBench(t *testing.T, dir string, runner run.Runner) *bench {
	t.Helper()
	if runner == nil {
		runner = run.Host{}
	}
	return &bench{
		t: t, dir: dir, volumes: loop.New(loop.Options{Dir: filepath.Join(dir, "volumes"), Namespace: "one"}),
		source: managedfs.New(managedfs.Options{Dir: filepath.Join(dir, "records"), Namespace: "one", Runner: runner}),
	}
}

func ref(id string) storage.Ref {
	return storage.Ref{ID: id, Stamp: storage.Stamp{Namespace: "one", UID: "uid-" + id}}
}

// device makes and attaches a volume, which is removed when the test ends.
func (b *bench) device(id string, size int64) string {
	b.t.Helper()
	b.t.Cleanup(func() {
		ctx := context.Background()
		_ = b.source.Detach(ctx, []storage.DetachParams{{Ref: ref(id)}})
		if err := errors.Join(b.volumes.Detach(ctx, []storage.DetachParams{{Ref: ref(id)}})[0], b.volumes.Destroy(ctx, []storage.Ref{ref(id)})[0]); err != nil {
			b.t.Errorf("cleaning up: %v", err)
		}
	})
	b.must(b.volumes.Create(b.t.Context(), []storage.VolumeParams{{Ref: ref(id), Size: size, Sparse: true}})[0].Err)
	return b.attachVolume(id)
}

func (b *bench) attachVolume(id string) string {
	b.t.Helper()
	got := b.volumes.Attach(b.t.Context(), []storage.VolumeAttachParams{{Ref: ref(id)}})[0]
	b.must(got.Err)
	return got.Value.Device
}

func (b *bench) create(id, kind, device string, wipe bool) (storage.Filesystem, error) {
	got := b.source.Create(context.Background(), []storage.FilesystemParams{{Ref: ref(id), Type: kind, Device: device, Wipe: wipe}})[0]
	return got.Value, got.Err
}

func (b *bench) attach(id, device string, options ...string) error {
	return b.source.Attach(context.Background(), []storage.FilesystemAttachParams{{Ref: ref(id), Path: b.path(id), Device: device, Options: options}})[0].Err
}

func (b *bench) path(id string) string { return filepath.Join(b.dir, "mounts", id) }

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// counting counts mkfs calls.
type counting struct{ made int }

func (r *counting) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if strings.HasPrefix(c.Name(), "mkfs.") {
		r.made++
	}
	return run.Host{}.Run(ctx, c)
}

// Z23: foreign content is refused with its type and label, and stays unchanged;
// the device is formatted only with Wipe. V30: the whole device is formatted,
// without partitions, and only if it exists.
func TestForeignContentIsRefused(t *testing.T) {
	b := newBench(t, storagetest.Dir(t), nil)
	device := b.device("data", 300*mib)
	for want, fill := range map[string][]string{
		`ext4 filesystem labelled "precious"`:  {"/sbin/mkfs.ext4", "-q", "-F", "-L", "precious", device},
		`xfs filesystem labelled "precious"`:   {"/sbin/mkfs.xfs", "-q", "-f", "-L", "precious", device},
		`btrfs filesystem labelled "precious"`: {"/sbin/mkfs.btrfs", "-q", "-f", "-L", "precious", device},
		`swap swap space labelled "precious"`:  {"/sbin/mkswap", "-q", "-L", "precious", device},
		`dos partition table`:                  {"/bin/dd", "of=" + device, "conv=notrunc"},
		`data of an unknown kind`:              {"/bin/dd", "of=" + device, "bs=512", "seek=100", "conv=notrunc"},
	} {
		b.must(erase(device))
		cmd := exec.Command(fill[0], fill[1:]...)
		cmd.Stdin = strings.NewReader(strings.Repeat("\x00", 446) + "\x80\x01\x01\x00\x83\x03\x20\x20\x00\x08\x00\x00\x00\x10\x00\x00" + strings.Repeat("\x00", 48) + "\x55\xaa")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		before := head(t, device)
		_, err := b.create("data", "ext4", device, false)
		if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "wipe: true") {
			t.Errorf("want %s, got %v", want, err)
		}
		if head(t, device) != before {
			t.Errorf("%s was changed", want)
		}
		// The host's blkid reports the same type.
		if kind, _, _ := strings.Cut(want, " "); kind != "data" {
			out, _ := exec.Command("/sbin/blkid", "-p", device).Output()
			if !strings.Contains(string(out), `"`+kind+`"`) {
				t.Errorf("want %s, blkid says %s", kind, out)
			}
		}
	}
	if _, err := b.create("none", "ext4", device+"-none", false); !fault.Is(err, fault.NotReady) {
		t.Errorf("on a device that is not there: %v", err)
	}
	if _, err := b.create("data", "xfs", device, true); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command("/sbin/blkid", "-p", device).Output(); !strings.Contains(string(out), ` TYPE="xfs"`) || strings.Contains(string(out), "PTTYPE") {
		t.Errorf("the device bears %s", out)
	}
	b.must(b.attach("data", device))
}

// An existing filesystem of an agent that lost its records is adopted
// unchanged; for a later declaration it is foreign.
func TestLostRecordsAdopt(t *testing.T) {
	for kind, size := range sizes {
		t.Run(kind, func(t *testing.T) {
			runner := &counting{}
			b := newBench(t, storagetest.Dir(t), runner)
			device := b.device("data", size)
			first, err := b.create("data", kind, device, false)
			b.must(err)
			if id, label := managedfs.Identity(ref("data").Stamp); first.UUID != id || first.Label != label {
				t.Errorf("made %+v", first)
			}
			b.must(b.attach("data", device))
			b.must(os.WriteFile(filepath.Join(b.path("data"), "file"), []byte("kept"), 0o600))
			b.must(b.source.Detach(t.Context(), []storage.DetachParams{{Ref: ref("data")}})[0])
			b.must(os.RemoveAll(filepath.Join(b.dir, "records")))
			again, err := b.create("data", kind, device, true)
			if err != nil || again.UUID != first.UUID || runner.made != 1 {
				t.Fatalf("%+v, %v, made %d times", again, err, runner.made)
			}
			b.must(b.attach("data", device))
			if got, err := os.ReadFile(filepath.Join(b.path("data"), "file")); string(got) != "kept" {
				t.Errorf("read %q, %v", got, err)
			}
			b.must(b.source.Detach(t.Context(), []storage.DetachParams{{Ref: ref("data")}})[0])
			if _, err := b.create("later", kind, device, false); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), first.Label) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// F16: a creation that was killed at any moment is repeated on its own device
// and never taken for complete; another device is refused.
func TestKilledMkfs(t *testing.T) {
	for kind, size := range sizes {
		t.Run(kind, func(t *testing.T) {
			for i, after := range []time.Duration{0, 2, 5, 10, 20, 40} {
				b := newBench(t, storagetest.Dir(t), nil)
				// Two filesystems with the same UUID cannot exist at the same
				// time.
				id := fmt.Sprintf("%s-%d", kind, i)
				device := b.device(id, size)
				killed := newBench(t, b.dir, killing{after * time.Millisecond})
				_, first := killed.create(id, kind, device, false)
				if first == nil {
					continue // mkfs was faster
				}
				if err := b.attach(id, device); err == nil {
					t.Errorf("after %d ms: a half made one was mounted", after)
				}
				if _, err := b.create(id, kind, device, false); err != nil {
					t.Errorf("after %d ms: %v", after, err)
				}
				b.must(b.attach(id, device))
				b.must(os.WriteFile(filepath.Join(b.path(id), "file"), []byte("kept"), 0o600))
			}
		})
	}
}

// killing kills mkfs after a while.
type killing struct{ after time.Duration }

func (r killing) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if strings.HasPrefix(c.Name(), "mkfs.") {
		c.Timeout, c.Grace = max(r.after, time.Microsecond), 0
	}
	return run.Host{}.Run(ctx, c)
}

// If device numbers change, the device with the UUID is mounted.
func TestRenumberedDevices(t *testing.T) {
	b := newBench(t, storagetest.Dir(t), nil)
	devices := map[string]string{}
	for _, id := range []string{"a", "b"} {
		devices[id] = b.device(id, 32*mib)
		_, err := b.create(id, "ext4", devices[id], false)
		b.must(err)
	}
	if err := b.attach("a", devices["b"]); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("mounted with %v", err)
	}
	if _, err := b.create("a", "ext4", devices["b"], true); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("made with %v", err)
	}
	b.must(b.attach("b", devices["b"]))
	b.must(b.attach("a", devices["a"]))
}

// W10: a filesystem's data is lost when its volume is created again. This is
// reported, and only the operator's retry makes the filesystem again, empty;
// never on a device with contents, and a killed creation continues.
func TestFilesystemOfARecreatedVolume(t *testing.T) {
	for kind, size := range sizes {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, storagetest.Dir(t), nil)
			device := b.device("data", size)
			_, err := b.create("data", kind, device, false)
			b.must(err)
			b.must(errors.Join(b.volumes.Detach(t.Context(), []storage.DetachParams{{Ref: ref("data")}})[0], b.volumes.Destroy(t.Context(), []storage.Ref{ref("data")})[0]))
			device = b.device("data", size)
			if err := b.attach("data", device); !fault.Is(err, fault.NotFound) {
				t.Fatalf("mounted with %v", err)
			}
			if _, err := b.create("data", kind, device, true); !fault.Is(err, fault.NotFound) {
				t.Fatalf("made without a word with %v", err)
			}
			anew := func(source *managedfs.Source) error {
				return source.Create(t.Context(), []storage.FilesystemParams{{Ref: ref("data"), Type: kind, Device: device, Wipe: true, Anew: true}})[0].Err
			}
			b.must(os.WriteFile(device, []byte("somebody's"), 0o600))
			if err := anew(b.source); !fault.Is(err, fault.NeedsOperator) || !strings.HasPrefix(head(t, device), "somebody's") {
				t.Fatalf("made on what somebody wrote: %v", err)
			}
			b.must(os.WriteFile(device, make([]byte, 4096), 0o600))
			killed := newBench(t, b.dir, killing{})
			if err := anew(killed.source); err == nil {
				t.Fatal("was not killed")
			}
			if got, err := b.source.List(t.Context()); err != nil || len(got) != 1 || !got[0].Unmade {
				t.Fatalf("%+v %v", got, err)
			}
			b.must(anew(b.source))
			b.must(b.attach("data", device))
		})
	}
}

// After ENOSPC or EIO in mkfs there is an error and no mount; with free space
// the creation succeeds.
func TestNoRoomForMkfs(t *testing.T) {
	dir := storagetest.Host(t, "tmpfs", 64*mib)
	b := newBench(t, dir, nil)
	device := b.device("data", 48*mib)
	filler := filepath.Join(dir, "filler")
	var st unix.Statfs_t
	b.must(unix.Statfs(dir, &st))
	b.must(os.WriteFile(filler, make([]byte, int64(st.Bavail)*st.Frsize-64<<10), 0o600))
	if _, err := b.create("data", "ext4", device, false); err == nil {
		t.Error("made without room")
	}
	if err := b.attach("data", device); err == nil {
		t.Error("mounted what is not made")
	}
	b.must(os.Remove(filler))
	_, err := b.create("data", "ext4", device, false)
	b.must(err)
	b.must(b.attach("data", device))
}

func TestOptionsReachTheKernel(t *testing.T) {
	b := newBench(t, storagetest.Dir(t), nil)
	device := b.device("data", 32*mib)
	_, err := b.create("data", "ext4", device, false)
	b.must(err)
	for _, wrong := range []string{"nonsense", "a,b", "remount", "loop", "x-systemd.automount", ""} {
		if err := b.attach("data", device, wrong); err == nil || fault.KindOf(err) == fault.Transient {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	b.must(b.attach("data", device, "noatime", "nosuid", "commit=17"))
	table, err := os.ReadFile("/proc/self/mountinfo")
	b.must(err)
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, b.path("data")) && (!strings.Contains(line, "nosuid,nodev,noatime") || !strings.Contains(line, "commit=17")) {
			t.Error(line)
		}
	}
	if _, err := b.create("data", "xfs", device, true); !fault.Is(err, fault.Invalid) {
		t.Errorf("became another type: %v", err)
	}
}

// A mounted device is never formatted, even with lost records.
func TestMountedDeviceIsBusy(t *testing.T) {
	b := newBench(t, storagetest.Dir(t), nil)
	device := b.device("data", 32*mib)
	_, err := b.create("data", "ext4", device, false)
	b.must(err)
	b.must(b.attach("data", device))
	_, err = b.create("later", "ext4", device, true)
	var busy *storage.BusyError
	if !errors.As(err, &busy) {
		t.Errorf("got %v", err)
	}
	all, err := blockdevice.Host{}.List(t.Context())
	b.must(err)
	for _, d := range all {
		if d.Path == device && (!d.InUse || len(d.MountPoints) != 1 || d.Type != "loop" || d.Size != 32*mib || len(d.Signatures) != 1 || d.Signatures[0].Type != "ext4") {
			t.Errorf("listed as %+v", d)
		}
	}
}

// A damaged ext4 becomes read-only and does not stop the host, whatever its
// superblock and the options say. A mount with another setting is corrected
// while it is in use.
// Attack: guests
func TestDamagedFilesystemsStopNoHost(t *testing.T) {
	for _, behaviour := range []string{"continue", "panic", "remount-ro"} {
		t.Run(behaviour, func(t *testing.T) {
			b := newBench(t, t.TempDir(), nil)
			device := b.device("data", 32*mib)
			_, err := b.create("data", "ext4", device, false)
			b.must(err)
			if out, err := exec.Command("tune2fs", "-e", behaviour, device).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			is := func() string {
				// The kernel lists all options there, including those of the
				// superblock.
				text, err := os.ReadFile("/proc/fs/ext4/" + filepath.Base(device) + "/options")
				b.must(err)
				for line := range strings.Lines(string(text)) {
					if strings.HasPrefix(line, "errors=") {
						return strings.TrimSpace(line)
					}
				}
				return ""
			}
			listed := func() bool {
				all, err := b.source.List(t.Context())
				b.must(err)
				return !all[0].Attachments[0].Unrestricted
			}
			b.must(b.attach("data", device, "errors=panic", "noatime"))
			if is() != "errors=remount-ro" || !listed() {
				t.Errorf("mounted it has %q, listed as such: %v", is(), listed())
			}
			used, err := os.Create(filepath.Join(b.path("data"), "used"))
			b.must(err)
			defer used.Close()
			b.must(unix.Mount("", b.path("data"), "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "errors="+behaviour))
			if is() != "errors="+behaviour || listed() != (behaviour == "remount-ro") {
				t.Errorf("mounted as before it has %q, listed as restricted: %v", is(), listed())
			}
			b.must(b.attach("data", device, "noatime"))
			if is() != "errors=remount-ro" || !listed() {
				t.Errorf("attached again it has %q, listed as such: %v", is(), listed())
			}
			if _, err := used.WriteString("on and on"); err != nil {
				t.Errorf("what was open is not: %v", err)
			}
		})
	}
}

func erase(device string) error {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(make([]byte, 80*mib))
	if err == nil {
		_, err = f.WriteAt(make([]byte, mib), 299*mib)
	}
	return errors.Join(err, f.Sync())
}

func head(t *testing.T, device string) string {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 4*mib)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}
