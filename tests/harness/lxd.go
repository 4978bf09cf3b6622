package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// LXD is a private daemon with a pool, a bridge and a default profile.
type LXD struct {
	// Dir is its LXD_DIR.
	Dir    string
	Bridge string
	t      testing.TB
	daemon *exec.Cmd
}

// StartLXD starts a daemon that is gone with all it made when the test ends.
// number (0 to 99) tells the daemons that run at one time apart.
func StartLXD(t testing.TB, number int) *LXD {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostler-lxd") //nolint:usetesting // a unix socket's path holds 107 bytes, t.TempDir is longer
	if err != nil {
		t.Fatal(err)
	}
	l := &LXD{Dir: filepath.Join(dir, "d"), Bridge: fmt.Sprintf("htest%d", number), t: t}
	parameters := KeepParameters(t)
	if err := os.Mkdir(l.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	l.daemon = exec.Command("lxd", "--group", "root", "--logfile", filepath.Join(dir, "log"))
	l.daemon.Env = append(os.Environ(), "LXD_DIR="+l.Dir)
	l.daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.daemon.Start(); err != nil {
		t.Fatalf("cannot start lxd: %v", err)
	}
	t.Cleanup(func() {
		l.stop()
		_ = os.RemoveAll(dir)
		parameters()
	})
	Wait(t, "lxd", time.Minute, func() error {
		_, err := Try(l.env(), "lxd", "waitready", "--timeout", "5")
		return err
	})
	for key, value := range map[string]string{"fs.inotify.max_user_instances": "1024", "kernel.keys.maxkeys": "2000", "kernel.keys.maxbytes": "2000000"} {
		Run(t, "sysctl", "-qw", key+"="+value)
	}
	// The names are the tests' own: what has one is left of a killed run.
	_, _ = Try(nil, "ip", "link", "delete", l.Bridge)
	l.Lxc("network", "create", l.Bridge, fmt.Sprintf("ipv4.address=10.233.%d.1/24", 100+number), "ipv4.nat=true", "ipv6.address=none")
	l.Lxc("storage", "create", "default", "btrfs", "size=20GiB")
	l.Lxc("profile", "device", "add", "default", "root", "disk", "path=/", "pool=default")
	l.Lxc("profile", "device", "add", "default", "eth0", "nic", "network="+l.Bridge, "name=eth0")
	return l
}

func (l *LXD) env() []string { return []string{"LXD_DIR=" + l.Dir} }

// TryLxc runs lxc against this daemon.
func (l *LXD) TryLxc(args ...string) (string, error) { return Try(l.env(), "lxc", args...) }

// Lxc is TryLxc for commands that must succeed.
func (l *LXD) Lxc(args ...string) string {
	l.t.Helper()
	out, err := l.TryLxc(args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// stop removes everything, users before the objects that they use, and continues
// after failures.
func (l *LXD) stop() {
	var errs []error
	do := func(args ...string) {
		if _, err := l.TryLxc(args...); err != nil {
			errs = append(errs, err)
		}
	}
	for _, url := range l.urls("/1.0/instances") {
		do("delete", "-f", filepath.Base(url))
	}
	for _, url := range l.urls("/1.0/images") {
		do("image", "delete", filepath.Base(url))
	}
	do("profile", "device", "remove", "default", "eth0")
	do("profile", "device", "remove", "default", "root")
	do("network", "delete", l.Bridge)
	do("storage", "delete", "default")
	if _, err := Try(l.env(), "lxd", "shutdown", "--timeout", "30"); err != nil {
		errs = append(errs, err)
		_ = l.daemon.Process.Kill()
	}
	_ = l.daemon.Wait()
	// LXD leaves its small tmpfs mounts behind.
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if fields := strings.Fields(lines[i]); len(fields) > 1 && strings.HasPrefix(fields[1], l.Dir+"/") {
			if err := syscall.Unmount(fields[1], syscall.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("cannot unmount %s: %w", fields[1], err))
			}
		}
	}
	for _, err := range errs {
		l.t.Errorf("cannot clean up after lxd: %v", err)
	}
}

func (l *LXD) urls(collection string) (urls []string) {
	out, err := l.TryLxc("query", collection)
	if err != nil {
		l.t.Errorf("cannot list %s: %v", collection, err)
		return nil
	}
	_ = json.Unmarshal([]byte(out), &urls)
	return urls
}

// KeepParameters notes the kernel parameters that LXD and the harness change,
// and returns what puts them back.
func KeepParameters(t testing.TB) (restore func()) {
	t.Helper()
	values := map[string]string{}
	for _, pattern := range []string{
		"fs/inotify/*", "kernel/keys/max*", "net/ipv4/ip_forward", "net/ipv4/conf/*/forwarding", "net/ipv6/conf/*/forwarding", "net/ipv6/conf/*/accept_ra",
	} {
		paths, _ := filepath.Glob("/proc/sys/" + pattern)
		for _, path := range paths {
			if b, err := os.ReadFile(path); err == nil {
				values[path] = strings.TrimSpace(string(b))
			}
		}
	}
	return func() {
		put := func(path string) {
			value := values[path]
			now, err := os.ReadFile(path)
			if err != nil || strings.TrimSpace(string(now)) == value {
				return // the link is gone, or nothing to do
			}
			if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
				t.Errorf("cannot put back %s: %v", path, err)
			}
		}
		// This one sets all the forwarding values of links, so it goes first.
		put("/proc/sys/net/ipv4/ip_forward")
		put("/proc/sys/net/ipv6/conf/all/forwarding")
		for path := range values {
			put(path)
		}
	}
}
