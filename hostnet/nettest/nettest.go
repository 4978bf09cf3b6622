// Package nettest creates temporary network namespaces for tests and joins them
// by veth pairs. It needs root.
package nettest

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hostler/internal/run"
)

const (
	ip      = "/usr/sbin/ip"
	nsenter = "/usr/bin/nsenter"
	unshare = "/usr/bin/unshare"
	limit   = 30 * time.Second
)

// Namespace is a network namespace whose loopback device is up. It disappears
// with all its devices when the test ends.
type Namespace struct {
	t    testing.TB
	path string
}

// New creates a namespace. The namespace's file is in the test's own folder
// rather than in the folder of the ip command. The ip command mounts its folder
// at its first namespace. Since packages are tested concurrently, no test could
// tell whether this mount must stay.
func New(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{t: t, path: filepath.Join(t.TempDir(), "net")}
	if err := os.WriteFile(n.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, unshare, "--net="+n.path, "--", "/bin/true")
	t.Cleanup(func() {
		if err := unix.Unmount(n.path, unix.MNT_DETACH); err != nil {
			t.Errorf("cannot unmount namespace %s: %v", n.path, err)
		}
	})
	n.IP("link set lo up")
	return n
}

// Path returns the namespace's file, which the ip command accepts as a name.
func (n *Namespace) Path() string { return n.path }

// IP runs the ip command with the words of args inside the namespace and
// returns its output.
func (n *Namespace) IP(args string) string {
	n.t.Helper()
	return n.Run(ip, strings.Fields(args)...)
}

// Run runs a program inside the namespace and returns its output.
func (n *Namespace) Run(path string, args ...string) string {
	n.t.Helper()
	return command(n.t, nsenter, append([]string{"--net=" + n.path, "--", path}, args...)...)
}

// Sysctl sets a kernel parameter of the namespace, e.g. net/ipv4/ip_forward=1.
func (n *Namespace) Sysctl(setting string) {
	n.t.Helper()
	n.Run("/usr/sbin/sysctl", "-q", "-w", setting)
}

// Pair joins this namespace to another by a veth pair and brings both ends up.
func (n *Namespace) Pair(device string, other *Namespace, otherDevice string) {
	n.t.Helper()
	command(n.t, ip, "link", "add", device, "netns", n.path, "type", "veth", "peer", "name", otherDevice, "netns", other.path)
	n.IP("link set " + device + " up")
	other.IP("link set " + otherDevice + " up")
}

// Do runs f on a thread in the namespace. Sockets that f opens stay there.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlock the thread, so that it ends with the goroutine.
		runtime.LockOSThread()
		ns, err := netns.GetFromPath(n.path)
		if err == nil {
			defer func() { _ = ns.Close() }()
			err = netns.Set(ns)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// Runner runs commands inside the namespace.
func (n *Namespace) Runner() run.Runner { return runner{n} }

type runner struct{ n *Namespace }

func (r runner) Run(ctx context.Context, c run.Command) (run.Result, error) {
	c.Args = append([]string{"--net=" + r.n.path, "--", c.Path}, c.Args...)
	c.Path = nsenter
	return run.Host{}.Run(ctx, c)
}

func command(t testing.TB, path string, args ...string) string {
	t.Helper()
	result, err := run.Host{}.Run(context.Background(), run.Command{Path: path, Args: args, Timeout: limit})
	if err != nil {
		t.Fatalf("%s %s: %v", path, strings.Join(args, " "), err)
	}
	return string(result.Stdout)
}
