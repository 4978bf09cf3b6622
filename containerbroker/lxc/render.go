package lxc

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// allowedDevices are the device nodes that every guest may use: making nodes,
// null, zero, full, random, urandom, tty, console, ptmx, terminals and fuse.
var allowedDevices = []string{
	"c *:* m", "b *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm",
	"c 5:0 rwm", "c 5:1 rwm", "c 5:2 rwm", "c 136:* rwm", "c 10:229 rwm",
}

const (
	capsUnprivileged = "sys_rawio" // it means nothing there, but systemd then skips mounts that would fail
	capsPrivileged   = "mac_admin mac_override sys_time sys_module sys_rawio"
	keyAutostart     = "lxc.start.auto"
	keyGroup         = "lxc.cgroup.dir.container"
	keyMap           = "lxc.idmap"
	keyMount         = "lxc.mount.entry"
	keyRoot          = "lxc.rootfs.path"
	keyCaps          = "lxc.cap.drop"
	seccomp          = "/usr/share/lxc/config/common.seccomp"
	apparmorProfile  = "lxc-hostler"
)

// nestingMounts let inner containers mount proc and sys.
var nestingMounts = []string{
	"proc dev/.lxc/proc proc create=dir,optional 0 0",
	"sys dev/.lxc/sys sysfs create=dir,optional 0 0",
}

// unified reports whether the host has cgroup v2 alone. liblxc 7 refuses the
// keys of the other layout.
func (d *Driver) unified() bool { return d.layout() }

// render returns the config of a new instance without its interfaces and
// disks. It stands on its own, without includes.
func (d *Driver) render(m containerbroker.Machine, root string) (config, error) {
	var c config
	for _, text := range []string{m.Name, root, d.opts.Path, d.opts.Namespace} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 127 }) {
			return c, fault.New(fault.Invalid, "%q has control characters", text)
		}
	}
	put := func(key, value string) { c.lines = append(c.lines, key+" = "+value) }
	scope := d.opts.Namespace + "." + m.Name
	put("lxc.uts.name", m.Name)
	put("lxc.arch", "linux64")
	put(keyRoot, "dir:"+root)
	put("lxc.autodev", "1")
	put("lxc.tty.max", "1")
	put("lxc.pty.max", "1024")
	put("lxc.tty.dir", "")
	put("lxc.mount.auto", "proc:mixed sys:mixed cgroup:mixed")
	put("lxc.seccomp.profile", seccomp)
	put("lxc.apparmor.profile", d.apparmor())
	put("lxc.console.logfile", filepath.Join(d.instance(m.Name), fileConsole))
	put("lxc.console.size", "1MB")
	put("lxc.console.rotate", "1")
	put("lxc.cgroup.dir.monitor", "lxc.monitor."+scope)
	put("lxc.cgroup.dir.monitor.pivot", "lxc.pivot."+d.opts.Namespace)
	put(keyGroup, "lxc.payload."+scope)
	put("lxc.cgroup.dir.container.inner", "guest")
	put(d.cgroupKey("devices.deny"), "a")
	for _, rule := range allowedDevices {
		put(d.cgroupKey("devices.allow"), rule)
	}
	d.setProperties(&c, m.Properties)
	return c, nil
}

// cgroupKey returns the key of a cgroup's setting in this host's layout.
func (d *Driver) cgroupKey(name string) string {
	if d.unified() {
		return "lxc.cgroup2." + name
	}
	return "lxc.cgroup." + name
}

// setProperties writes the properties of a machine, except the root disk.
func (d *Driver) setProperties(c *config, p containerbroker.Properties) {
	for _, l := range d.limits(p) {
		c.set(d.cgroupKey(l.file), l.value)
	}
	setAutostart(c, p.Autostart)
	d.setPrivileged(c, p.Privileged)
	setNesting(c, p.Nesting)
}

func setAutostart(c *config, on bool) {
	c.set(keyAutostart, map[bool]string{true: "1"}[on])
}

func setNesting(c *config, on bool) {
	for _, entry := range nestingMounts {
		if on {
			c.add(keyMount, entry)
		} else {
			c.remove(keyMount, entry)
		}
	}
}

func (d *Driver) setPrivileged(c *config, on bool) {
	ids := d.opts.IDs
	if on {
		c.set(keyMap, "")
		c.set(keyCaps, capsPrivileged)
		return
	}
	count := strconv.FormatUint(uint64(min(ids.Count, 65536)), 10)
	if len(c.all(keyMap)) == 0 {
		c.add(keyMap, fmt.Sprintf("u 0 %d %s", ids.FirstUser, count))
		c.add(keyMap, fmt.Sprintf("g 0 %d %s", ids.FirstGroup, count))
	}
	c.set(keyCaps, capsUnprivileged)
}

// apparmor returns the profile for guests. Without AppArmor, or if the package's
// profile is not loaded, guests are not confined by it.
func (d *Driver) apparmor() string {
	on, _ := os.ReadFile(filepath.Join(d.opts.Sys, "module/apparmor/parameters/enabled"))
	loaded, _ := os.ReadFile(filepath.Join(d.opts.Sys, "kernel/security/apparmor/profiles"))
	if strings.HasPrefix(string(on), "Y") && strings.Contains("\n"+string(loaded), "\n"+apparmorProfile+" (") {
		return apparmorProfile
	}
	return "unconfined"
}

// macOf derives the MAC address of an interface that declares none.
func macOf(uid, name string) string {
	sum := sha256.Sum256([]byte(uid + "/" + name))
	return fmt.Sprintf("00:16:3e:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}
