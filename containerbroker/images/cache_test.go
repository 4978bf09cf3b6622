package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hostler/internal/fault"
	"hostler/internal/run"
	"hostler/internal/run/runtest"
)

// workshop is a host on which builds take no time: mmdebstrap leaves an empty
// root, mksquashfs a small valid squashfs. If hold has a channel for a
// codename, its builds wait for it.
type workshop struct {
	*runtest.Fake
	builds atomic.Int32
	hold   map[string]chan struct{} // by codename
	broken atomic.Bool
}

func newWorkshop() *workshop {
	w := &workshop{Fake: runtest.NewFake(), hold: map[string]chan struct{}{}}
	w.Handle("unshare", func(ctx context.Context, c run.Command) (run.Result, error) {
		w.builds.Add(1)
		codename, root := buildArgs(c)
		if w.broken.Load() {
			return runtest.Exit(c, 1, "E: the mirror is gone")
		}
		c.OnLine("I: running apt-get update...")
		c.OnLine("I: downloading packages with apt...")
		if hold := w.hold[codename]; hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
				return run.Result{ExitCode: -1}, fmt.Errorf("cannot run unshare: stopped: %w", ctx.Err())
			}
		}
		return run.Result{}, os.MkdirAll(filepath.Join(root, "etc"), 0o755)
	})
	w.Handle("mksquashfs", func(_ context.Context, c run.Command) (run.Result, error) {
		return run.Result{}, os.WriteFile(c.Args[1], squash{}.bytes(dir("", dir("etc"), reg(fmt.Sprintf("f%d", w.builds.Load()), 1))), 0o600)
	})
	return w
}

// buildArgs finds the suite and the target among mmdebstrap's arguments.
func buildArgs(c run.Command) (codename, root string) {
	for i, a := range c.Args {
		if strings.HasPrefix(a, "/") && strings.HasSuffix(a, "/root") {
			return c.Args[i-1], a
		}
	}
	return "", ""
}

func open(t *testing.T, change func(*Options)) *Cache {
	t.Helper()
	o := Options{
		Dir: filepath.Join(t.TempDir(), "images"), Arch: "amd64",
		Mirrors: Mirrors{Debian: "http://mirror.test/debian"},
	}
	if change != nil {
		change(&o)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// imageFile writes a valid unified image and returns its path and digest.
func imageFile(t *testing.T, extra ...file) (path, sum string) {
	t.Helper()
	data := gz(t, pack(t, with(extra...)))
	path = filepath.Join(t.TempDir(), "image.tar.gz")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(data)
	return path, hex.EncodeToString(h[:])
}

// tidy checks that no unfinished work is left and all files have their modes.
func tidy(t *testing.T, dir string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if strings.HasSuffix(path, ".hostler-tmp") {
			t.Errorf("%s is left over", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFileIsCopiedCheckedAndKept(t *testing.T) {
	path, sum := imageFile(t)
	dir := filepath.Join(t.TempDir(), "images")
	c := open(t, func(o *Options) { o.Dir = dir })
	ref := "file:" + path + "#sha256=" + sum
	a, err := c.Ensure(t.Context(), ref, FormatLXD, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest != sum || a.Reference != ref || a.Rootfs != "" || filepath.Base(a.Path) != sum {
		t.Errorf("got %+v", a)
	}
	// The original may be removed; the copy stays.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	again, err := open(t, func(o *Options) { o.Dir = dir }).Ensure(t.Context(), ref, FormatLXD, nil)
	if err != nil || again.Path != a.Path {
		t.Errorf("got %+v, %v", again, err)
	}
	tidy(t, dir)
	if err := c.Delete(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), ref); err != nil {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := os.Stat(a.Path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if _, err := c.Ensure(t.Context(), ref, FormatLXD, nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidImagesAreNotKept(t *testing.T) {
	path, sum := imageFile(t)
	evil, evilSum := imageFile(t, file{name: "backup.yaml", body: "x"})
	dir := filepath.Join(t.TempDir(), "images")
	c := open(t, func(o *Options) { o.Dir = dir })
	for name, c2 := range map[string]struct {
		ref  string
		kind fault.Kind
		why  string
	}{
		"wrong digest":   {"file:" + path + "#sha256=" + digest, fault.Invalid, "the file has another sha256"},
		"evil":           {"file:" + evil + "#sha256=" + evilSum, fault.Invalid, "backup.yaml"},
		"folder":         {"file:" + filepath.Dir(path) + "#sha256=" + sum, fault.Invalid, "not a regular file"},
		"absent":         {"file:" + path + ".x#sha256=" + sum, fault.NotFound, "has no file"},
		"LXD's own":      {"lxd:mine", fault.Invalid, "only its driver resolves"},
		"unknown server": {"simplestreams:x/debian/12", fault.Invalid, "no server of that name"},
		"nowhere":        {"plan9/4", fault.NotFound, "no image \"plan9/4\" on this host (cache, aliases of the hypervisor), and hostler can build only debian/11, debian/12, debian/13, debian/testing, ubuntu/24.04, ubuntu/26.04, busybox/1"},
	} {
		if _, err := c.Ensure(t.Context(), c2.ref, FormatLXD, nil); fault.KindOf(err) != c2.kind || !strings.Contains(err.Error(), c2.why) {
			t.Errorf("%s: got %v (%s)", name, err, fault.KindOf(err))
		}
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("kept %v, %v", list, err)
	}
	tidy(t, dir)
	if _, err := Open(Options{Dir: dir, Sources: []string{"nfs"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a source that is none: %v", err)
	}
	if _, err := Open(Options{Dir: dir, Sources: []string{"simplestreams:a"}, Servers: map[string]string{"a": "http://x"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a server without https: %v", err)
	}
}

// No error shows the digest of a file that is no image, e.g. of /etc/shadow,
// and no fifo blocks the caller.
// Attack: images
func TestErrorsShowNoDigestOfOtherFiles(t *testing.T) {
	secret := []byte("root:$y$j9T$secret:19000:0:99999:7:::\n")
	sum := fmt.Sprintf("%x", sha256.Sum256(secret))
	path, pipe := filepath.Join(t.TempDir(), "shadow"), filepath.Join(t.TempDir(), "pipe")
	if err := errors.Join(os.WriteFile(path, secret, 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	m := newMirror(t)
	m.files["/shadow"] = secret
	c, _ := m.cache(t, nil)
	ensure := func(ref string) error {
		_, err := c.Ensure(t.Context(), ref, FormatLXD, nil)
		return err
	}
	load := func(path, as, digest string) error {
		_, err := c.Import(t.Context(), path, as, digest, nil)
		return err
	}
	for name, err := range map[string]error{
		"file":                  ensure("file:" + path + "#sha256=" + digest),
		"https":                 ensure(m.URL + "/shadow#sha256=" + digest),
		"import":                load(path, "", ""),
		"import as":             load(path, "mine/1", ""),
		"import with a digest":  load(path, "mine/1", digest),
		"file, a fifo":          ensure("file:" + pipe + "#sha256=" + digest),
		"import, a fifo":        load(pipe, "", ""),
		"import as, of a fifo":  load(pipe, "mine/1", ""),
		"import of a directory": load(filepath.Dir(path), "", ""),
	} {
		if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), sum) {
			t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
		}
	}
}

func TestImportKeepsAFileUnderAName(t *testing.T) {
	path, sum := imageFile(t)
	c := open(t, nil)
	if _, err := c.Import(t.Context(), path, "mine/1", digest, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("a wrong digest: %v", err)
	}
	if _, err := c.Import(t.Context(), path, "lxd:x", "", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("a name that is none: %v", err)
	}
	if _, err := c.Import(t.Context(), path, "mine/1", sum, nil); err != nil {
		t.Fatal(err)
	}
	a, err := c.Ensure(t.Context(), "mine/1", FormatLXD, nil)
	if err != nil || a.Digest != sum {
		t.Errorf("got %+v, %v", a, err)
	}
	b, err := c.Import(t.Context(), path, "", "", nil)
	if err != nil || b.Reference != "file:"+path+"#sha256="+sum {
		t.Errorf("got %+v, %v", b, err)
	}
	// Two references share a file, which is deleted with the last of them.
	if err := c.Delete(t.Context(), "mine/1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.Path); err != nil {
		t.Error(err)
	}
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(disk, qcow2(nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Import(t.Context(), disk, "mine/2", "", nil); err != nil || d.Format != FormatDisk {
		t.Errorf("got %+v, %v", d, err)
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("got %v, %v", list, err)
	}
}

// A hypervisor's own image is used only at the place of "local" among the
// sources; the cache takes precedence.
func TestAHypervisorsOwnImageIsUsedInTheOrderOfSources(t *testing.T) {
	const ownID = "its-own"
	for name, c := range map[string]struct {
		sources  []string
		ref      string
		imported bool
		says     error // the hypervisor's answer
		builds   int32
		own      bool
		kind     fault.Kind
	}{
		"local first":             {sources: []string{"local", "build"}, own: true},
		"by default":              {own: true},
		"local last":              {sources: []string{"build", "local"}, builds: 1},
		"local last and alone":    {sources: []string{"build", "local"}, ref: "mine/1", own: true},
		"not local":               {sources: []string{"build"}, builds: 1},
		"the cache holds it":      {sources: []string{"local", "build"}, imported: true},
		"no alias":                {says: fault.New(fault.NotFound, "there is none"), builds: 1},
		"the hypervisor is mute":  {says: fault.New(fault.Transient, "no answer"), kind: fault.Transient},
		"a file is not its alias": {ref: "file:/none.tar#sha256=" + strings.Repeat("0a", 32), kind: fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop()
			cache := open(t, func(o *Options) { o.Runner, o.Sources = w, c.sources })
			ref, sum := c.ref, ""
			if ref == "" {
				ref = "debian/12"
			}
			if c.imported {
				var path string
				path, sum = imageFile(t)
				if _, err := cache.Import(t.Context(), path, ref, sum, nil); err != nil {
					t.Fatal(err)
				}
			}
			a, err := cache.EnsureOrOwn(t.Context(), ref, FormatLXD, func(context.Context) (string, error) { return ownID, c.says }, nil)
			if fault.KindOf(err) != c.kind || (a.Own == ownID) != c.own || w.builds.Load() != c.builds || sum != "" && a.Digest != sum {
				t.Errorf("%+v, %v after %d builds", a, err, w.builds.Load())
			}
			if err != nil && !strings.Contains(err.Error(), "image "+ref) {
				t.Errorf("it names no image: %v", err)
			}
		})
	}
}

// Concurrent callers share a build; all of them get its progress, and a caller
// that stops waiting does not disturb the others.
func TestCallersShareOneBuild(t *testing.T) {
	w := newWorkshop()
	w.hold["bookworm"] = make(chan struct{})
	dir := filepath.Join(t.TempDir(), "images")
	c := open(t, func(o *Options) { o.Runner, o.Dir = w, dir })
	const callers = 8
	var wg sync.WaitGroup
	told := make(chan struct{}, 1000)
	results := make([]Artifact, callers)
	for i := range callers {
		wg.Go(func() {
			var err error
			results[i], err = c.Ensure(t.Context(), "debian/12", FormatLXD, func(message string, _ int) {
				if message == "downloading packages" {
					told <- struct{}{}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range callers {
		<-told
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ensure(ctx, "debian/12", FormatLXD, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(w.hold["bookworm"])
	wg.Wait()
	if n := w.builds.Load(); n != 1 {
		t.Errorf("%d builds", n)
	}
	for _, r := range results {
		if r != results[0] || r.Rootfs == "" {
			t.Errorf("got %+v", r)
		}
	}
	tidy(t, dir)
	// LXD's fingerprint of a split image is the digest over both files.
	var both []byte
	for _, p := range []string{results[0].Path, results[0].Rootfs} {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, data...)
	}
	if sum := sha256.Sum256(both); hex.EncodeToString(sum[:]) != results[0].Digest || int64(len(both)) != results[0].Size {
		t.Errorf("the digest is not that over both files")
	}
}

// Z9: a running build does not delay other images.
func TestOneBuildBlocksNoOtherImage(t *testing.T) {
	w := newWorkshop()
	w.hold["bookworm"] = make(chan struct{})
	c := open(t, func(o *Options) { o.Runner = w })
	slow := make(chan error, 1)
	begun := make(chan struct{})
	var once sync.Once
	go func() {
		_, err := c.Ensure(t.Context(), "debian/12", FormatLXD, func(string, int) { once.Do(func() { close(begun) }) })
		slow <- err
	}()
	<-begun
	if _, err := c.Ensure(t.Context(), "debian/13", FormatLXD, nil); err != nil {
		t.Fatal(err)
	}
	path, sum := imageFile(t)
	if _, err := c.Ensure(t.Context(), "file:"+path+"#sha256="+sum, FormatLXD, nil); err != nil {
		t.Fatal(err)
	}
	close(w.hold["bookworm"])
	if err := <-slow; err != nil {
		t.Fatal(err)
	}
}

// When no caller waits any more, the work ends and leaves no files.
func TestBuildEndsWithItsLastCaller(t *testing.T) {
	w := newWorkshop()
	w.hold["bookworm"] = make(chan struct{})
	dir := filepath.Join(t.TempDir(), "images")
	c := open(t, func(o *Options) { o.Runner, o.Dir = w, dir })
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Ensure(ctx, "debian/12", FormatLXD, func(message string, _ int) {
		if message == "downloading packages" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	tidy(t, dir)
	close(w.hold["bookworm"])
	if _, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Two caches on the same directory stand for two processes: they use the same
// locks.
func TestProcessesShareOneBuild(t *testing.T) {
	w := newWorkshop()
	w.hold["bookworm"] = make(chan struct{})
	dir := filepath.Join(t.TempDir(), "images")
	first := open(t, func(o *Options) { o.Runner, o.Dir = w, dir })
	second := open(t, func(o *Options) { o.Runner, o.Dir = w, dir })
	var wg sync.WaitGroup
	building, waiting := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		if _, err := first.Ensure(t.Context(), "debian/12", FormatLXD, closeAt("downloading packages", building)); err != nil {
			t.Error(err)
		}
	})
	<-building
	wg.Go(func() {
		if _, err := second.Ensure(t.Context(), "debian/12", FormatLXD, closeAt("waiting for another process that works on this image", waiting)); err != nil {
			t.Error(err)
		}
	})
	<-waiting
	// A third cache that opens now leaves the work of the first unchanged.
	open(t, func(o *Options) { o.Dir = dir })
	close(w.hold["bookworm"])
	wg.Wait()
	if n := w.builds.Load(); n != 1 {
		t.Errorf("%d builds", n)
	}
}

func closeAt(message string, c chan struct{}) Progress {
	var once sync.Once
	return func(m string, _ int) {
		if m == message {
			once.Do(func() { close(c) })
		}
	}
}

func TestDamagedImageIsBuiltAgain(t *testing.T) {
	w := newWorkshop()
	dir := filepath.Join(t.TempDir(), "images")
	use := func() *Cache { return open(t, func(o *Options) { o.Runner, o.Dir = w, dir }) }
	a, err := use().Ensure(t.Context(), "debian/12", FormatLXD, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, damage := range []func() error{
		func() error {
			return os.WriteFile(a.Rootfs, bytes.Repeat([]byte("x"), int(fileSize(t, a.Rootfs))), 0o600)
		},
		func() error { return os.Truncate(a.Rootfs, 10) },
		func() error { return os.Remove(a.Path) },
		func() error {
			return errors.Join(os.Remove(a.Path), os.Symlink("/etc/passwd", a.Path))
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		c := use()
		if a, err = c.Ensure(t.Context(), "debian/12", FormatLXD, nil); err != nil {
			t.Fatal(err)
		}
		if again, err := use().Ensure(t.Context(), "debian/12", FormatLXD, nil); err != nil || again != a {
			t.Errorf("after damage %d: %+v, %v", i, again, err)
		}
		if n := int(w.builds.Load()); n != i+2 {
			t.Errorf("%d builds after damage %d", n, i)
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Work of a killed process is removed at the next start, with the programs that
// it left running; work of a live process stays.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	open(t, func(o *Options) { o.Dir = dir })
	left := filepath.Join(dir, "tmp", "work-1.hostler-tmp")
	if err := os.MkdirAll(filepath.Join(left, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("/bin/sleep", "600")
	orphan.Dir = filepath.Join(left, "root")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	open(t, func(o *Options) { o.Dir = dir })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the orphan ended with %v", err)
	}
	tidy(t, dir)
}

// Any user may work in a directory that has the path of a work folder in a
// mount namespace of the user's own. Such a process neither keeps the folder nor
// is killed.
// Attack: images
func TestAProcessInAnotherMountNamespaceKeepsNoWorkFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	open(t, func(o *Options) { o.Dir = dir })
	left := filepath.Join(dir, "tmp", "work-1.hostler-tmp")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("unshare", "--mount", "sh", "-ec", `mount -t tmpfs none "$0"; cd "$0"; echo; exec sleep 600`, left)
	out, err := stranger.StdoutPipe()
	if err == nil {
		err = stranger.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	open(t, func(o *Options) { o.Dir = dir })
	tidy(t, dir)
	_ = stranger.Process.Signal(syscall.SIGTERM)
	if err := stranger.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the process ended with %v", err)
	}
}

func TestAWorkFolderThatCannotBeRemovedKeepsNoCacheClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	open(t, func(o *Options) { o.Dir = dir })
	busy := filepath.Join(dir, "tmp", "work-1.hostler-tmp", "root")
	if err := os.MkdirAll(busy, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("test", busy, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	open(t, func(o *Options) { o.Dir = dir })
	if err := syscall.Unmount(busy, 0); err != nil {
		t.Fatal(err)
	}
	open(t, func(o *Options) { o.Dir = dir })
	tidy(t, dir)
}

func TestBuiltImageIsRefreshedAfterItsTime(t *testing.T) {
	w := newWorkshop()
	now := time.Now()
	c := open(t, func(o *Options) {
		o.Runner, o.Refresh, o.Clock = w, time.Hour, func() time.Time { return now }
	})
	ensure := func(builds int32) Artifact {
		t.Helper()
		a, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil)
		if err != nil || w.builds.Load() != builds {
			t.Fatalf("%v after %d builds, want %d", err, w.builds.Load(), builds)
		}
		return a
	}
	first := ensure(1)
	now = now.Add(30 * time.Minute)
	ensure(1)
	now = now.Add(time.Hour)
	w.broken.Store(true)
	if old := ensure(2); old.Digest != first.Digest {
		t.Error("an image that cannot be refreshed is not used as it is")
	}
	// A create does not wait for the mirror again for a while.
	now = now.Add(refreshPause - time.Second)
	if old := ensure(2); old.Digest != first.Digest {
		t.Error("an image that cannot be refreshed is not used as it is")
	}
	now = now.Add(time.Second)
	ensure(3)
	w.broken.Store(false)
	ensure(3)
	now = now.Add(refreshPause)
	if fresh := ensure(4); fresh.Digest == first.Digest {
		t.Error("the image is not refreshed")
	}
}

func TestBuildReplacesTheKeptImage(t *testing.T) {
	w := newWorkshop()
	c := open(t, func(o *Options) { o.Runner = w })
	first, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Build(t.Context(), "debian/12", FormatLXD, nil)
	if err != nil || second.Digest == first.Digest {
		t.Fatalf("got %+v, %v", second, err)
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 1 || list[0].Digest != second.Digest {
		t.Errorf("got %+v, %v", list, err)
	}
	w.broken.Store(true)
	if _, err := c.Build(t.Context(), "debian/11", FormatLXD, nil); err == nil || !strings.Contains(err.Error(), "the mirror is gone") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Build(t.Context(), "lxd:x", FormatLXD, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
}
