package images

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/internal/run"
)

// A build gets the packages that earlier builds from the same archive
// downloaded, unless they are damaged or too old.
func TestBuildsShareTheirDownloads(t *testing.T) {
	w := newWorkshop()
	dir, mirror, now := filepath.Join(t.TempDir(), "images"), "http://mirror.test/debian", time.Now()
	var offered []string
	w.Handle("unshare", func(_ context.Context, c run.Command) (run.Result, error) {
		codename, root := buildArgs(c)
		debs := filepath.Join(filepath.Dir(root), "debs")
		found, err := os.ReadDir(debs)
		offered = nil
		for _, f := range found {
			offered = append(offered, f.Name())
		}
		// What the hooks leave.
		for _, name := range []string{"common_1_all.deb", codename + "_1_all.deb"} {
			if !slices.Contains(offered, name) {
				err = errors.Join(err, os.WriteFile(filepath.Join(debs, name), []byte(name), 0o644))
			}
		}
		return run.Result{}, errors.Join(err, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	})
	build := func(image string, want ...string) {
		t.Helper()
		c := open(t, func(o *Options) {
			o.Dir, o.Runner, o.Mirrors.Debian, o.Clock = dir, w, mirror, func() time.Time { return now }
		})
		if _, err := c.Build(t.Context(), image, FormatLXD, nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(offered, want) {
			t.Errorf("a build of %s was offered %q, want %q", image, offered, want)
		}
		tidy(t, dir)
	}
	build("debian/12")
	build("debian/13", "bookworm_1_all.deb", "common_1_all.deb")
	build("debian/12", "bookworm_1_all.deb", "common_1_all.deb", "trixie_1_all.deb")
	kept, err := filepath.Glob(filepath.Join(dir, debsDir, "*", "common_*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%q, %v", kept, err)
	}
	if err := os.WriteFile(kept[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	build("debian/12", "bookworm_1_all.deb", "trixie_1_all.deb")
	build("debian/12", "bookworm_1_all.deb", "common_1_all.deb", "trixie_1_all.deb")
	mirror = "http://private.test/debian"
	build("debian/12")
	now = now.Add(keptDebs.maxAge + time.Hour)
	build("debian/12")
}

// Old packages, and the oldest of too many, are removed when a build keeps its
// own: an agent may run for months.
func TestKeptPackagesAreBounded(t *testing.T) {
	now := time.Now()
	c := open(t, func(o *Options) { o.Clock = func() time.Time { return now } })
	work, kept := t.TempDir(), filepath.Join(c.o.Dir, debsDir, "archive")
	keep := func(name string, size int64, want ...string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(work, debsWork)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(work, debsWork), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(work, debsWork, name)
		if err := errors.Join(os.WriteFile(path, []byte(name), 0o600), os.Truncate(path, 10)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.keepDebs(t.Context(), kept, work); err != nil {
			t.Fatal(err)
		}
		paths, _ := filepath.Glob(filepath.Join(kept, name+".*"))
		if len(paths) == 1 { // a sparse file: sumFile would read all of it
			if err := errors.Join(os.Truncate(paths[0], size), os.Chtimes(paths[0], now, now)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, d := range c.list(keptDebs) {
			name, _, _ := strings.Cut(filepath.Base(d.path), ".")
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("kept are %q, want %q", got, want)
		}
		now = now.Add(20 * 24 * time.Hour)
	}
	keep("a.deb", 10, "a")
	keep("b.deb", keptDebs.maxSize-10, "a", "b")
	keep("c.deb", 10, "b", "c")
	keep("d.deb", keptDebs.maxSize, "c", "d")
	keep("e.deb", 10, "e")
}

// Kept packages give way if there is no room for an image.
func TestKeptPackagesGiveWay(t *testing.T) {
	var free func() int64
	var disk string
	c := open(t, func(o *Options) { free = onSmallDisk(t, o, 160); disk = o.Dir })
	of := filepath.Join(disk, debsDir, "archive")
	if err := os.MkdirAll(of, 0o700); err != nil {
		t.Fatal(err)
	}
	for free() > spare+2<<20 {
		path := filepath.Join(of, "p"+time.Now().Format("150405.000000000")+".deb.sum")
		if err := os.WriteFile(path, make([]byte, 4<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.needSpace(16 << 20); err != nil {
		t.Error(err)
	}
	if n := len(c.list(keptDebs)); n == 0 {
		t.Error("more packages were removed than the image needs")
	}
}
