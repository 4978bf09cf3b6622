// Package lxctest gives a test a host of its own for classic LXC: network and
// mount namespaces in which the agent and LXC's tools run, with a bridge lxcbr0, a
// pool and a configuration that no other test sees. The package needs root and
// LXC's tools.
package lxctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/internal/run"
)

// waitLimit bounds every wait of this package.
const waitLimit = time.Minute

// Host is a host for classic LXC.
type Host struct {
	// Path is liblxc's folder of instances, Namespace the agent's namespace. Both
	// must be the test's own, since cgroups are named after the namespace.
	Path, Namespace string

	t      testing.TB
	dir    string // covers for folders of the machine
	holder *os.Process
	// folder is Path, open: the test reads the folder without opening it, which
	// would count as a listing.
	folder *os.File
	watch  *watch
}

// script covers the folders that LXC's package and the initialiser write, and
// keeps the namespaces. /sys is mounted again, since it shows the links of the
// network namespace in which it was mounted.
const script = `set -e
mkdir "$0/cgroup" "$0/default"
mount --rbind /sys/fs/cgroup "$0/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$0/cgroup" /sys/fs/cgroup
umount -l "$0/cgroup"
cp -a /etc/default/. "$0/default"
rm -f "$0/default/lxc-net"
mount --bind "$0/default" /etc/default
mkdir -p /run/lxc
for d in /run/lxc /var/lib/misc; do mount -t tmpfs -o mode=0755 tmpfs "$d"; done
ip link set lo up
touch "$0/ready"
exec sleep infinity
`

// Start makes a host, which goes with the test. path need not exist.
func Start(t testing.TB, path, namespace string) *Host {
	t.Helper()
	h := newHost(t, path, namespace)
	null, err := os.Open(os.DevNull)
	h.must(err)
	defer func() { _ = null.Close() }()
	h.holder, err = os.StartProcess("/usr/bin/unshare", []string{"unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, h.dir},
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, os.Stderr, os.Stderr}})
	h.must(err)
	t.Cleanup(h.tearDown)
	h.until("the namespaces", func() error {
		_, err := os.Stat(filepath.Join(h.dir, "ready"))
		return err
	})
	h.open()
	return h
}

// StartBeside uses the machine's own namespaces, for a test with machines of
// several types on one bridge. lxcbr0, if it is not there, is a bridge without
// addresses, so that nothing of the machine is configured.
func StartBeside(t testing.TB, path, namespace string) *Host {
	t.Helper()
	h := newHost(t, path, namespace)
	if _, err := h.Try("ip", "link", "add", "lxcbr0", "type", "bridge"); err == nil {
		t.Cleanup(func() { h.Run("ip", "link", "delete", "lxcbr0") })
	}
	t.Cleanup(h.tearDown)
	h.open()
	return h
}

func newHost(t testing.TB, path, namespace string) *Host {
	t.Helper()
	h := &Host{Path: path, Namespace: namespace, t: t, dir: t.TempDir()}
	// Guests' root passes through all folders on the way.
	h.must(os.Chmod(filepath.Dir(path), 0o711))
	if err := os.Mkdir(path, 0o711); !errors.Is(err, os.ErrExist) {
		h.must(err)
	}
	return h
}

func (h *Host) open() {
	h.t.Helper()
	var err error
	h.folder, err = os.Open(h.Path)
	h.must(err)
	h.watch = newWatch(h.t, h.Path)
}

func (h *Host) must(err error) {
	h.t.Helper()
	must(h.t, err)
}

func (h *Host) until(what string, try func() error) {
	h.t.Helper()
	deadline := time.Now().Add(waitLimit)
	err := try()
	for ; err != nil; err = try() {
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Prefix returns the beginning of a command line. The program that follows runs
// on the host.
func (h *Host) Prefix() []string {
	if h.holder == nil {
		return nil
	}
	own := fmt.Sprintf("/proc/%d/ns/", h.holder.Pid)
	return []string{"/usr/bin/nsenter", "--net=" + own + "net", "--mount=" + own + "mnt", "--"}
}

// Try runs a program on the host and returns its output.
func (h *Host) Try(program string, args ...string) (string, error) {
	argv := append(append(h.Prefix(), program), args...)
	if h.holder == nil {
		argv = append([]string{"/usr/bin/env"}, argv...)
	}
	out, err := run.Host{}.Run(context.Background(), run.Command{Path: argv[0], Args: argv[1:], Timeout: waitLimit})
	if err != nil {
		err = fmt.Errorf("%s %v: %w: %s", program, args, err, out.Stderr)
	}
	return string(out.Stdout), err
}

// Run is Try for programs that must succeed.
func (h *Host) Run(program string, args ...string) string {
	h.t.Helper()
	out, err := h.Try(program, args...)
	h.must(err)
	return out
}

// tearDown ends the guests and removes what liblxc keeps of them.
func (h *Host) tearDown() {
	if h.watch != nil {
		for _, name := range h.Names() {
			_, _ = h.Try("lxc-unfreeze", "-P", h.Path, "-n", name)
			_, _ = h.Try("lxc-stop", "-k", "-P", h.Path, "-n", name)
		}
		h.watch.close()
		_ = h.folder.Close()
	}
	if h.holder != nil {
		_, _ = h.Try("/usr/libexec/lxc/lxc-net", "stop", "force")
		_ = h.holder.Kill()
		_, _ = h.holder.Wait()
	}
	deadline := time.Now().Add(waitLimit)
	for left := h.cgroups(); len(left) > 0; left = h.cgroups() {
		if time.Now().After(deadline) {
			h.t.Errorf("cgroups are left: %v", left)
			return
		}
		for _, dir := range left {
			removeCgroup(dir)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// cgroups are the folders of the namespace's guests, on either version.
func (h *Host) cgroups() (all []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/lxc.*." + h.Namespace, "/sys/fs/cgroup/*/lxc.*." + h.Namespace} {
		for _, more := range []string{"", ".*"} {
			found, _ := filepath.Glob(pattern + more)
			all = append(all, found...)
		}
	}
	return all
}

// removeCgroup removes a cgroup with those inside, as far as they are empty.
func removeCgroup(dir string) {
	inside, _ := os.ReadDir(dir)
	for _, e := range inside {
		if e.IsDir() {
			removeCgroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir)
}

// Process is the id of a guest's init, 0 if it does not run.
func (h *Host) Process(name string) int {
	out, _ := h.Try("lxc-info", "-P", h.Path, "-n", name, "-p", "-H")
	pid, _ := strconv.Atoi(strings.TrimSpace(out))
	return max(pid, 0)
}

// Monitor is the id of the process that watches over a running guest.
func (h *Host) Monitor(name string) int {
	h.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.Process(name)))
	h.must(err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	pid, err := strconv.Atoi(strings.Fields(rest)[1])
	h.must(err)
	return pid
}
