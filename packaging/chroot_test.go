//go:build integration

package packaging_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
)

// chroot is an overlay of this host's Debian. The real apt and dpkg work in it
// on toy packages from a folder, and the host stays untouched.
type chroot struct {
	t    *testing.T
	root string
	p    paths.Paths
	apt  *packaging.Apt
	said []string
}

// inside runs the host's commands in the chroot.
type inside string

func (root inside) Run(ctx context.Context, c run.Command) (run.Result, error) {
	c.Args = append([]string{string(root), c.Path}, c.Args...)
	c.Path = "/usr/sbin/chroot"
	return run.Host{}.Run(ctx, c)
}

func newChroot(t *testing.T) *chroot {
	t.Helper()
	base := t.TempDir()
	c := &chroot{t: t, root: filepath.Join(base, "root")}
	for _, dir := range []string{"root", "upper", "work", "tmpfs"} {
		c.must(os.Mkdir(filepath.Join(base, dir), 0o755))
	}
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(base, "upper"), filepath.Join(base, "work"))
	c.must(unix.Mount("overlay", c.root, "overlay", 0, options))
	t.Cleanup(func() {
		if err := unix.Unmount(c.root, 0); err != nil {
			t.Errorf("cannot unmount %s: %v", c.root, err)
		}
	})
	_ = os.Remove(filepath.Join(c.root, "dev/null"))
	c.must(unix.Mknod(filepath.Join(c.root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	c.must(os.Chmod(filepath.Join(c.root, "dev/null"), 0o666))
	for _, dir := range []string{"etc/apt/sources.list.d", "etc/apt/apt.conf.d", "var/lib/apt/lists"} {
		c.must(os.RemoveAll(filepath.Join(c.root, dir)))
		c.must(os.MkdirAll(filepath.Join(c.root, dir), 0o755))
	}
	// dpkg's records of the host's packages are not needed and would be slow.
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/triggers", "var/lib/dpkg/updates", "repo"} {
		c.must(os.RemoveAll(filepath.Join(c.root, dir)))
		c.must(os.MkdirAll(filepath.Join(c.root, dir), 0o755))
	}
	c.write("var/lib/dpkg/status", "")
	c.write("etc/apt/sources.list", "deb [trusted=yes] file:/repo ./\n")
	c.p = paths.New(c.root, "", filepath.Join(base, "tmpfs"), filepath.Join(base, "tmpfs"))
	c.apt = packaging.NewApt(c.p, inside(c.root), inside(c.root), "", nil, slog.New(slog.DiscardHandler))
	return c
}

func (c *chroot) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *chroot) write(name, text string) {
	c.t.Helper()
	c.must(os.WriteFile(filepath.Join(c.root, name), []byte(text), 0o644))
}

func (c *chroot) exists(name string) bool {
	_, err := os.Stat(filepath.Join(c.root, name))
	return err == nil
}

// offer puts a package into the folder that is apt's repository. scripts maps
// the names of maintainer scripts to their text. fields are more lines of its
// control file.
func (c *chroot) offer(name string, scripts map[string]string, fields ...string) {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), name)
	c.must(os.MkdirAll(filepath.Join(dir, "DEBIAN"), 0o755))
	control := fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: toy\n", name)
	for _, field := range fields {
		control += field + "\n"
	}
	c.must(os.WriteFile(filepath.Join(dir, "DEBIAN/control"), []byte(control), 0o644))
	c.must(os.MkdirAll(filepath.Join(dir, "opt"), 0o755))
	c.must(os.WriteFile(filepath.Join(dir, "opt", name), []byte("x"), 0o644))
	for script, text := range scripts {
		c.must(os.WriteFile(filepath.Join(dir, "DEBIAN", script), []byte("#!/bin/sh\nset -e\n"+text+"\n"), 0o755))
	}
	file := "repo/" + name + "_1_all.deb"
	if _, err := (run.Host{}).Run(c.t.Context(), run.Command{Path: "/usr/bin/dpkg-deb", Args: []string{"--build", dir, filepath.Join(c.root, file)}}); err != nil {
		c.t.Fatal(err)
	}
	deb, err := os.ReadFile(filepath.Join(c.root, file))
	c.must(err)
	old, _ := os.ReadFile(filepath.Join(c.root, "repo/Packages"))
	c.write("repo/Packages", string(old)+control+fmt.Sprintf("Filename: ./%s_1_all.deb\nSize: %d\nSHA256: %x\n\n", name, len(deb), sha256.Sum256(deb)))
}

func (c *chroot) install(names ...string) error {
	c.said = nil
	return c.apt.Install(c.t.Context(), names, func(s string) { c.said = append(c.said, s) })
}

// wantClean fails unless all names are installed and dpkg finds no problem.
func (c *chroot) wantClean(names ...string) {
	c.t.Helper()
	if missing, err := c.apt.Missing(names); err != nil || len(missing) != 0 || c.apt.Unfinished() {
		c.t.Errorf("missing %q, unfinished %v, %v", missing, c.apt.Unfinished(), err)
	}
	result, err := inside(c.root).Run(c.t.Context(), run.Command{Path: paths.Dpkg, Args: []string{"--audit"}})
	if err != nil || len(result.Stdout) != 0 {
		c.t.Errorf("dpkg --audit: %s, %v", result.Stdout, err)
	}
	for _, lock := range c.p.PackageLocks()[:2] {
		if _, err := os.Stat(lock); err != nil {
			c.t.Errorf("lock file: %v", err)
		}
	}
}

// child runs this test binary again, as an agent of its own.
func (c *chroot) child(env ...string) int {
	c.t.Helper()
	self, err := os.Executable()
	c.must(err)
	result, err := run.Host{}.Run(c.t.Context(), run.Command{
		Path: self, Args: []string{"-test.run=^TestChild$"},
		Env: append(env, "CHILD_ROOT="+c.root, "CHILD_STATE="+c.p.StateDir), Detach: filepath.Join(c.t.TempDir(), "log"),
	})
	c.must(err)
	return result.PID
}

// TestChild is the work of the children: hold dpkg's lock, or install.
func TestChild(t *testing.T) {
	root := os.Getenv("CHILD_ROOT")
	if root == "" {
		return // only for children
	}
	p := paths.New(root, "", os.Getenv("CHILD_STATE"), os.Getenv("CHILD_STATE"))
	if os.Getenv("CHILD_LOCK") != "" {
		f, err := os.OpenFile(p.PackageLocks()[0], os.O_RDWR|os.O_CREATE, 0o640)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "locked"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		return
	}
	apt := packaging.NewApt(p, inside(root), inside(root), "", nil, slog.New(slog.DiscardHandler))
	if err := apt.Install(t.Context(), strings.Fields(os.Getenv("CHILD_INSTALL")), func(string) {}); err != nil {
		t.Fatal(err)
	}
}

func (c *chroot) wait(what string, done func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not in 30 s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *chroot) kill(pid int) {
	c.t.Helper()
	c.must(syscall.Kill(pid, syscall.SIGKILL))
	c.wait("the end of "+strconv.Itoa(pid), func() bool { return syscall.Kill(pid, 0) != nil })
}
