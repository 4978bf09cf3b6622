// Package nettest makes throw-away network namespaces for tests, joined by
// pairs of virtual devices. It needs root.
package nettest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hostler/internal/run"
)

const (
	ip      = "/usr/sbin/ip"
	nsenter = "/usr/bin/nsenter"
	limit   = 30 * time.Second
)

var count atomic.Int64

// Namespace is a network namespace with its loopback device up. It goes when
// the test ends, and all its devices with it.
type Namespace struct {
	t    testing.TB
	Name string
}

// New makes a namespace.
func New(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{t: t, Name: fmt.Sprintf("hostler-test-%d-%d", os.Getpid(), count.Add(1))}
	keepFolder(t)
	command(t, ip, "netns", "add", n.Name)
	t.Cleanup(func() {
		if _, err := (run.Host{}).Run(context.Background(), run.Command{Path: ip, Args: []string{"netns", "del", n.Name}, Timeout: limit}); err != nil {
			t.Error(err)
		}
	})
	n.IP("link set lo up")
	return n
}

// keepFolder has the mount that the first namespace of a host's life makes go
// with the last one of the test.
func keepFolder(t testing.TB) {
	t.Helper()
	if mounted() {
		return
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			return
		}
		for mounted() { // more than once where programs raced
			if err := unix.Unmount(folder, 0); err != nil {
				t.Errorf("cannot unmount %s: %v", folder, err)
				return
			}
		}
		_ = os.Remove(folder)
	})
}

// folder is where the ip command keeps namespaces.
const folder = "/run/netns"

func mounted() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(mounts), " "+folder+" ")
}

// Path is the namespace's file.
func (n *Namespace) Path() string { return folder + "/" + n.Name }

// IP runs the ip command with the words of args inside the namespace and
// returns what it prints.
func (n *Namespace) IP(args string) string {
	n.t.Helper()
	return n.Run(ip, strings.Fields(args)...)
}

// Run runs a program inside the namespace and returns what it prints.
func (n *Namespace) Run(path string, args ...string) string {
	n.t.Helper()
	return command(n.t, nsenter, append([]string{"--net=" + n.Path(), "--", path}, args...)...)
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
	command(n.t, ip, "link", "add", device, "netns", n.Name, "type", "veth", "peer", "name", otherDevice, "netns", other.Name)
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
		ns, err := netns.GetFromPath(n.Path())
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
	c.Args = append([]string{"--net=" + r.n.Path(), "--", c.Path}, c.Args...)
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
