package harness

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Host is a container with systemd that serves as a whole machine: it may
// run an LXD of its own.
type Host struct {
	Name string
	lxd  *LXD
	t    testing.TB
}

// nestedCgroups makes the v1 controllers cpu and cpuacct visible inside: the
// machine mounts them as two hierarchies, systemd in the container expects
// one that joins them, and liblxc finds neither. Where the machine has no
// such hierarchies it changes nothing.
const nestedCgroups = `
grep -q ' /sys/fs/cgroup cgroup2 ' /proc/mounts && exit 0
mount -o remount,rw /sys/fs/cgroup
for c in cpu cpuacct; do
  mountpoint -q /sys/fs/cgroup/$c && continue
  rm -rf /sys/fs/cgroup/$c; mkdir /sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup /sys/fs/cgroup/$c
done
rmdir /sys/fs/cgroup/cpu,cpuacct 2>/dev/null
mount -o remount,ro /sys/fs/cgroup`

const nestedCgroupsUnit = `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=-/bin/sh /etc/nested-cgroups
[Install]
WantedBy=sysinit.target
`

// StartHost launches a test host of HostRelease and waits until it is up and
// has an address.
func (l *LXD) StartHost(name string) *Host {
	l.t.Helper()
	if _, err := l.TryLxc("image", "info", "host"); err != nil {
		meta, rootfs := HostImage(l.t, HostRelease(l.t))
		l.Lxc("image", "import", meta, rootfs, "--alias", "host")
	}
	l.Lxc("launch", "host", name, "-c", "security.privileged=true", "-c", "security.nesting=true")
	h := &Host{Name: name, lxd: l, t: l.t}
	h.settle()
	// The unit does it again at each boot, before any container starts.
	h.Write("/etc/nested-cgroups", nestedCgroups)
	h.Write("/etc/systemd/system/nested-cgroups.service", nestedCgroupsUnit)
	h.Sh("systemctl -q enable --now nested-cgroups.service")
	resolver, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		l.t.Fatal(err)
	}
	h.Write("/etc/resolv.conf", string(resolver))
	h.Write("/etc/apt/sources.list", strings.Join(HostRelease(l.t).Mirrors(l.t), "\n")+"\n")
	return h
}

// Restart reboots the host and waits until it is up again.
func (h *Host) Restart() {
	h.t.Helper()
	h.Reboot()
	h.settle()
}

// Reboot reboots the host and does not wait for it.
func (h *Host) Reboot() {
	h.t.Helper()
	h.lxd.Lxc("restart", h.Name)
}

// settle waits until the host is up and has an address.
func (h *Host) settle() {
	h.t.Helper()
	Wait(h.t, "systemd in "+h.Name, time.Minute, func() error {
		out, err := h.Try("systemctl is-system-running")
		if state := strings.TrimSpace(out); state == "running" || state == "degraded" {
			return nil
		}
		return fmt.Errorf("%q, %v", out, err)
	})
	Wait(h.t, "an address in "+h.Name, time.Minute, func() error {
		if out, _ := h.Try("ip -4 -o addr show dev eth0 scope global"); out == "" {
			return errors.New("none")
		}
		return nil
	})
}

// Copy starts a copy of the host, which must be stopped.
func (h *Host) Copy(name string) *Host {
	h.t.Helper()
	h.lxd.Lxc("copy", h.Name, name)
	c := &Host{Name: name, lxd: h.lxd, t: h.t}
	c.Start()
	return c
}

// Stop shuts the host down.
func (h *Host) Stop() {
	h.t.Helper()
	h.lxd.Lxc("stop", h.Name)
}

// Start boots the host, which must be stopped, and waits until it is up.
func (h *Host) Start() {
	h.t.Helper()
	h.lxd.Lxc("start", h.Name)
	h.settle()
}

// Delete removes the host, if it is there.
func (h *Host) Delete() {
	h.t.Helper()
	if out, err := h.lxd.TryLxc("delete", "-f", h.Name); err != nil && !strings.Contains(err.Error()+out, "not found") {
		h.t.Fatal(err)
	}
}

// With returns the host for the use of a subtest.
func (h *Host) With(t testing.TB) *Host {
	return &Host{Name: h.Name, lxd: &LXD{Dir: h.lxd.Dir, Bridge: h.lxd.Bridge, t: t}, t: t}
}

// Try runs a shell script in the host as root.
func (h *Host) Try(script string) (string, error) {
	return h.lxd.TryLxc("exec", h.Name, "-T", "--", "sh", "-c", script)
}

// Sh is Try for scripts that must succeed.
func (h *Host) Sh(script string) string {
	h.t.Helper()
	out, err := h.Try(script)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// Push copies a file into the host.
func (h *Host) Push(from, to string) {
	h.t.Helper()
	h.lxd.Lxc("file", "push", "-q", from, h.Name+to)
}

// Write makes a file in the host.
func (h *Host) Write(path, content string) {
	h.t.Helper()
	file, err := os.CreateTemp(h.t.TempDir(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := file.WriteString(content); err != nil {
		h.t.Fatal(err)
	}
	file.Close()
	h.Sh("rm -f " + path) // it may be a link
	h.lxd.Lxc("file", "push", "-q", "--mode=0644", file.Name(), h.Name+path)
}

// Install installs packages or .deb files with apt.
func (h *Host) Install(packages ...string) {
	h.t.Helper()
	h.Sh("DEBIAN_FRONTEND=noninteractive apt-get -qq -y --allow-downgrades --no-install-recommends install " + strings.Join(packages, " ") + " </dev/null")
}

// Mount shows a folder of this machine inside the host.
func (h *Host) Mount(source, path string, readOnly bool) {
	h.t.Helper()
	name := strings.ReplaceAll(strings.Trim(path, "/"), "/", "-")
	h.lxd.Lxc("config", "device", "add", h.Name, name, "disk", "source="+source, "path="+path, fmt.Sprintf("readonly=%v", readOnly))
}

// PushClone puts the files of the clone, as git sees them, into a folder of
// the host, and makes Go and its caches usable there.
func (h *Host) PushClone(dir string) {
	h.t.Helper()
	root, file := Root(h.t), h.t.TempDir()+"/clone.tar"
	Run(h.t, "sh", "-c", `cd "$1" && git -c safe.directory=* ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 ls -d 2>/dev/null | tar -cf "$2" -T -`, "sh", root, file)
	h.Push(file, "/root/clone.tar")
	h.Sh("mkdir -p " + dir + " && tar -xf /root/clone.tar -C " + dir + " && rm /root/clone.tar && chown -R root:root " + dir)
	env := strings.Fields(Run(h.t, "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE"))
	h.Mount(env[0], "/usr/local/go", true)
	h.Mount(env[1], "/root/go/pkg/mod", true)
	h.Mount(env[2], "/root/.cache/go-build", false)
}
