package idmap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
	"hostler/storage/mounts"
)

var guest = Map{Users: Range{100000, 65536}, Groups: Range{200000, 65536}}

func TestOf(t *testing.T) {
	fallback := Map{Users: Range{1, 2}, Groups: Range{3, 4}}
	for name, c := range map[string]struct {
		subuid, subgid string
		want           Map
		fails          bool
	}{
		"no files":           {want: fallback},
		"rows of others":     {subuid: "lxc:1:65536\nroot:100000:65536\n", subgid: "_lxd:5:65536\nroot:200000:65536\n", want: guest},
		"too few, then more": {subuid: "root:1:10\nroot:100000:65536\n", subgid: "0:200000:65536\n", want: guest},
		"no row":             {subuid: "lxc:1:65536\n", fails: true},
		"damaged":            {subuid: "root:x:65536\nroot:1\n\n", fails: true},
		"out of range":       {subuid: "root:99999999999:65536\n", fails: true},
	} {
		dir := t.TempDir()
		write := func(name, text string) string {
			path := filepath.Join(dir, name)
			if text != "" {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return path
		}
		subuid := write("subuid", c.subuid)
		got, err := Of(subuid, write("subgid", c.subgid), "root", fallback)
		if mend := subuid + " has no row of root with 65536 ids; run `usermod --add-subuids 1-2 root`"; c.fails && !strings.Contains(err.Error(), mend) {
			t.Errorf("%s: %v", name, err)
		}
		if (err != nil) != c.fails || err == nil && got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		view View
		p    Params
		want bool
	}{
		"mapped":                 {View{Filesystem: "a", Mapped: true}, Params{Map: &guest}, true},
		"given to the guest":     {View{Filesystem: "a", Owner: 100033}, Params{Map: &guest}, true},
		"of the host's users":    {View{Filesystem: "a", Owner: 0}, Params{Map: &guest}, false},
		"mapped, but privileged": {View{Filesystem: "a", Mapped: true}, Params{}, false},
		"privileged":             {View{Filesystem: "a", Owner: 5}, Params{}, true},
		"another filesystem":     {View{Filesystem: "b"}, Params{}, false},
		"writable":               {View{Filesystem: "a"}, Params{ReadOnly: true}, false},
		"read-only":              {View{Filesystem: "a", ReadOnly: true}, Params{}, false},
	} {
		if got := c.view.Fits("a", c.p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// aMount mounts a tmpfs for the test and returns views beside it.
func aMount(t *testing.T) (*Views, string) {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", source, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(source, unix.MNT_DETACH) })
	return aView(t, dir), source
}

func aView(t *testing.T, dir string) *Views {
	v := New(Options{Dir: filepath.Join(dir, "views"), Runner: run.Host{}})
	t.Cleanup(func() {
		all, err := v.List(t.Context())
		if err != nil {
			t.Error(err)
		}
		for path := range all {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
		v.Close()
	})
	return v
}

// shows checks that files written through a view by the guest's users get the
// translated owners, and that the view can be made and removed.
func shows(t *testing.T, v *Views, source string) {
	t.Helper()
	path := filepath.Join(v.o.Dir, "web", "www")
	p := Params{Source: source, Path: path, Map: &guest}
	for range 2 { // repeated calls succeed
		if r := v.Show(t.Context(), []Params{p}); r[0].Err != nil || !r[0].Value.Mapped || r[0].Value.Owner != 100000 {
			t.Fatalf("%+v", r[0])
		}
	}
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err == nil {
		t.Error("the host's root, who is nobody there, made a file in the guest's folder")
	}
	if err := os.WriteFile(filepath.Join(source, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(filepath.Join(source, "file"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Lstat(file, &s); err != nil || s.Uid != 101000 || s.Gid != 201000 {
		t.Errorf("the guest's user 1000 is %d:%d on the host: %v", s.Uid, s.Gid, err)
	}
	if err := os.Lchown(file, 100033, 200033); err != nil {
		t.Error(err)
	}
	if err := unix.Lstat(filepath.Join(source, "file"), &s); err != nil || s.Uid != 33 || s.Gid != 33 {
		t.Errorf("stored as %d:%d: %v", s.Uid, s.Gid, err)
	}
	p.ReadOnly = true
	if err := v.Show(t.Context(), []Params{p})[0].Err; !fault.Is(err, fault.Conflict) {
		t.Errorf("another view at the same place: %v", err)
	}
	p.Path = filepath.Join(v.o.Dir, "db", "www")
	if err := v.Show(t.Context(), []Params{p})[0].Err; err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(filepath.Join(p.Path, "file"), 100000, 200000); err == nil {
		t.Error("a read-only view can be written")
	}
	for range 2 { // repeated calls succeed
		for _, err := range v.Hide(t.Context(), []HideParams{{Path: path}, {Path: p.Path}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if entries, err := os.ReadDir(v.o.Dir); err == nil && len(entries) > 0 {
		t.Errorf("left over: %v", entries)
	}
}

func TestViewsOfMemory(t *testing.T) {
	v, source := aMount(t)
	shows(t, v, source)
}

func TestPrivilegedViewsKeepOwners(t *testing.T) {
	v, source := aMount(t)
	path := filepath.Join(v.o.Dir, "web", "www")
	if r := v.Show(t.Context(), []Params{{Source: source, Path: path}}); r[0].Err != nil || r[0].Value.Mapped || r[0].Value.Owner != 0 {
		t.Fatalf("%+v", r[0])
	}
	if err := os.WriteFile(filepath.Join(path, "file"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	listed, err := v.List(t.Context(), source)
	if err != nil || listed[path].Filesystem == "" || listed[path].Filesystem != listed[source].Filesystem {
		t.Errorf("%+v, %v", listed, err)
	}
}

// If the kernel refuses the mapping, an empty directory is given to the guest,
// and a directory with contents is left unchanged.
func TestRefusedMapping(t *testing.T) {
	_, source := aMount(t)
	if err := os.Mkdir(filepath.Join(source, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := give(source, guest, "tmpfs", unix.EINVAL); err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Lstat(source, &s); err != nil || s.Uid != 100000 || s.Gid != 200000 {
		t.Errorf("owned by %d:%d: %v", s.Uid, s.Gid, err)
	}
	if err := os.WriteFile(filepath.Join(source, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := give(source, guest, "tmpfs", unix.EINVAL); err != nil {
		t.Errorf("a directory that the guest has already: %v", err)
	}
	if err := os.Lchown(source, 0, 0); err != nil {
		t.Fatal(err)
	}
	err := give(source, guest, "tmpfs", unix.EINVAL)
	if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "users from 100000") {
		t.Errorf("%v", err)
	}
}

func TestViewsStayInTheirFolder(t *testing.T) {
	v, source := aMount(t)
	for _, path := range []string{"/srv", v.o.Dir, v.o.Dir + "/../x", v.o.Dir + "x/y", "relative"} {
		if err := v.Show(t.Context(), []Params{{Source: source, Path: path}})[0].Err; !fault.Is(err, fault.Invalid) {
			t.Errorf("show %s: %v", path, err)
		}
		if err := v.Hide(t.Context(), []HideParams{{Path: path}})[0]; !fault.Is(err, fault.Invalid) {
			t.Errorf("hide %s: %v", path, err)
		}
	}
	if err := v.Show(t.Context(), []Params{{Source: filepath.Dir(source), Path: v.o.Dir + "/a"}})[0].Err; !fault.Is(err, fault.NotReady) {
		t.Errorf("what is no mount: %v", err)
	}
}

// Z24: the error of a busy view names the holder.
func TestBusyView(t *testing.T) {
	v, source := aMount(t)
	path := filepath.Join(v.o.Dir, "web", "www")
	if err := v.Show(t.Context(), []Params{{Source: source, Path: path}})[0].Err; err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(path, "held"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Hide(t.Context(), []HideParams{{Path: path}})[0]; err == nil || !strings.Contains(err.Error(), file.Name()) {
		t.Errorf("%v", err)
	}
	// After a forced removal, open files of the view still work.
	if err := v.Hide(t.Context(), []HideParams{{Path: path, Force: true}})[0]; err != nil {
		t.Error(err)
	}
	if all, err := v.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("seen after that: %v, %v", all, err)
	}
	if _, err := file.WriteString("kept"); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := v.Hide(t.Context(), []HideParams{{Path: path}})[0]; err != nil {
		t.Error(err)
	}
}

// The host's mount has nosuid and nodev. A guest's view lifts them where the
// guest may use setuid programs and devices; the host's mount keeps them.
func TestViewsAllowGuestsMoreThanTheHost(t *testing.T) {
	v, source := aMount(t)
	const host = unix.ST_NOSUID | unix.ST_NODEV
	if err := mounts.Restrict(source, "tmpfs"); err != nil {
		t.Fatal(err)
	}
	flags := func(path string) int64 {
		var s unix.Statfs_t
		if err := unix.Statfs(path, &s); err != nil {
			t.Fatal(err)
		}
		return s.Flags & host
	}
	for name, c := range map[string]struct {
		p    Params
		want int64
	}{
		"as-the-host":  {Params{}, host},
		"programs":     {Params{Setuid: true, Map: &guest}, unix.ST_NODEV},
		"privileged":   {Params{Setuid: true, Devices: true}, 0},
		"said-nosuid":  {Params{Devices: true}, unix.ST_NOSUID},
		"reads-its-fs": {Params{Setuid: true, ReadOnly: true}, unix.ST_NODEV},
	} {
		c.p.Source, c.p.Path = source, filepath.Join(v.o.Dir, name, "www")
		if r := v.Show(t.Context(), []Params{c.p})[0]; r.Err != nil || r.Value.ReadOnly != c.p.ReadOnly {
			t.Errorf("%s: %+v", name, r)
		} else if got := flags(c.p.Path); got != c.want {
			t.Errorf("%s: the view has the flags %#x, want %#x", name, got, c.want)
		}
		if got := flags(source); got != host {
			t.Errorf("%s: the host's mount has the flags %#x", name, got)
		}
	}
}
