// Package nettest makes throw-away network namespaces for tests, joined by
// pairs of virtual devices. It needs root.
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

// Namespace is a network namespace with its loopback device up. It goes when
// the test ends, and all its devices with it.
type Namespace struct {
	t    testing.TB
	path string
}

// New makes a namespace. It is kept in the test's own folder rather than among
// those of the ip command: packages are tested at the same time, and none could
// tell whether the mount that the command makes for its first one is to stay.
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

// Path is the namespace's file, which the ip command takes as a name.
func (n *Namespace) Path() string { return n.path }

// IP runs the ip command with the words of args inside the namespace and
// returns what it prints.
func (n *Namespace) IP(args string) string {
	n.t.Helper()
	return n.Run(ip, strings.Fields(args)...)
}

// Run runs a program inside the namespace and returns what it prints.
func (n *Namespace) Run(path string, args ...string) string {
	n.t.Helper()
	return command(n.t, nsenter, append([]string{"--net=" + n.path, "--", path}, args...)...)
}

// Sysctl sets a kernel parameter of the namespace, such as
// net/ipv4/ip_forward=1.
func (n *Namespace) Sysctl(setting string) {
	n.t.Helper()
	n.Run("/usr/sbin/sysctl", "-q", "-w", setting)
}

// Pair joins this namespace to another by a pair of devices, which are up.
func (n *Namespace) Pair(device string, other *Namespace, otherDevice string) {
	n.t.Helper()
	command(n.t, ip, "link", "add", device, "netns", n.path, "type", "veth", "peer", "name", otherDevice, "netns", other.path)
	n.IP("link set " + device + " up")
	other.IP("link set " + otherDevice + " up")
}

// Do runs f on a thread that is inside the namespace. Sockets that f opens
// stay there.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
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
