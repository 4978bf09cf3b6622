//go:build integration

package images

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/images/imagestest"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/run"
)

// openReal opens a cache that really builds.
func openReal(t *testing.T) (*Cache, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "images")
	c, err := Open(Options{Dir: dir, Runner: run.Host{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

// lxc runs LXD's own client on a private server.
func lxc(t *testing.T, s *lxdtest.Server, args ...string) string {
	t.Helper()
	out, err := tryLXC(t.Context(), s, args...)
	if err != nil {
		t.Fatalf("lxc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func tryLXC(ctx context.Context, s *lxdtest.Server, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/lxc", args...)
	cmd.Env = append(os.Environ(), "LXD_DIR="+s.Dir, "LXD_CONF="+s.Dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// address waits for an IPv4 address of eth0.
func address(t *testing.T, s *lxdtest.Server, name string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		out, err := tryLXC(t.Context(), s, "exec", name, "--", "ip", "-4", "addr", "show", "dev", "eth0")
		if err == nil && strings.Contains(out, "inet ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no address: %v\n%s", name, err, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

const userData = `#cloud-config
ssh_authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl test"]
write_files: [{path: /etc/marker, content: "written\n"}]
runcmd: [[sh, -c, "getent hosts deb.debian.org > /etc/resolved"]]
`

// A Debian image is built from this host's own mirror, imported by LXD under
// the fingerprint that is its digest, and starts without a failed unit.
func TestDebianIsBuiltAndStarts(t *testing.T) {
	for _, release := range debianReleases {
		t.Run(release, func(t *testing.T) {
			c, dir := openReal(t)
			start := time.Now()
			a, err := c.Ensure(t.Context(), "debian/"+release, FormatLXD, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("built in %.1f s, %d MiB", time.Since(start).Seconds(), a.Size>>20)
			tidy(t, dir)
			if release == "12" { // the release that other packages' tests run
				imagestest.Keep(t, dir)
			}

			s := lxdtest.StartWith(t, lxdtest.Options{Driver: "btrfs", NoImage: true})
			out := lxc(t, s, "image", "import", a.Path, a.Rootfs, "--alias", "debian")
			if !strings.Contains(out, a.Digest) {
				t.Errorf("the digest is %s and LXD says %s", a.Digest, out)
			}
			start = time.Now()
			lxc(t, s, "launch", "debian", "deb1", "-c", "cloud-init.user-data="+userData)
			launched := time.Since(start)
			if out := lxc(t, s, "exec", "deb1", "--", "cloud-init", "status", "--wait", "--long"); !strings.Contains(out, "status: done") {
				t.Errorf("cloud-init: %s", out)
			}
			t.Logf("launched in %.1f s, ready in %.1f s", launched.Seconds(), time.Since(start).Seconds())
			for command, want := range map[string]string{
				"systemctl is-system-running --wait": `^running$`,
				"systemctl --failed --no-legend":     `^$`,
				"cat /etc/marker /etc/hostname":      `^written\ndeb1$`,
				"cat /etc/resolved":                  `deb\.debian\.org`,
				"hostname -f":                        `^deb1`,
				"sudo -n true":                       `^$`,
				"systemctl is-active ssh":            `^active$`,
				"ls /etc/ssh /root/.ssh":             `ssh_host_ed25519_key`,
				"cat /etc/apt/sources.list":          `^deb http`,
				"sh -c 'ls /usr/share/man /usr/share/locale 2>/dev/null | head -1'": ``,
				"test -x /usr/bin/py3compile":                                       `^$`,
			} {
				got, err := tryLXC(t.Context(), s, append([]string{"exec", "deb1", "--", "sh", "-c"}, command)...)
				if err != nil || !regexp.MustCompile(want).MatchString(strings.TrimSpace(got)) {
					t.Errorf("%s: %v, %q", command, err, got)
				}
			}
			lxc(t, s, "stop", "deb1", "--timeout", "30")
		})
	}
}

// The busybox image gets an address, has the machine's hostname and stops on
// request.
func TestBusyboxIsBuiltAndStarts(t *testing.T) {
	c, dir := openReal(t)
	a, err := c.Ensure(t.Context(), "busybox/1", FormatLXD, nil)
	if err != nil {
		t.Fatal(err)
	}
	tidy(t, dir)
	if a.Size > 2<<20 {
		t.Errorf("it has %d bytes", a.Size)
	}
	s := lxdtest.StartWith(t, lxdtest.Options{Driver: "dir", NoImage: true})
	lxc(t, s, "image", "import", a.Path, a.Rootfs, "--alias", "tiny")
	start := time.Now()
	lxc(t, s, "launch", "tiny", "tiny1")
	t.Logf("launched in %.2f s", time.Since(start).Seconds())
	address(t, s, "tiny1")
	if got := lxc(t, s, "exec", "tiny1", "--", "hostname"); got != "tiny1" {
		t.Errorf("it is called %q", got)
	}
	if got := lxc(t, s, "exec", "tiny1", "--", "sh", "-c", "cat /etc/resolv.conf; ip route"); !strings.Contains(got, "nameserver") || !strings.Contains(got, "default via") {
		t.Errorf("its network: %s", got)
	}
	start = time.Now()
	lxc(t, s, "stop", "tiny1", "--timeout", "20")
	t.Logf("stopped in %.2f s", time.Since(start).Seconds())
}

// A cancelled build leaves no file, no process and no mount.
func TestCancelledBuildLeavesNothing(t *testing.T) {
	c, dir := openReal(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Build(ctx, "debian/12", FormatLXD, func(message string, _ int) {
		if message == "installing the base system" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	tidy(t, dir)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("something is still mounted below %s", dir)
	}
}
