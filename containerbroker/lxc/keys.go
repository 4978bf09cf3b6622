package lxc

import (
	"slices"
	"strings"
)

// keys are the keys that liblxc 5 and later know. A key that ends with a dot
// stands for all keys with this beginning.
var keys = []string{
	"lxc.apparmor.allow_incomplete", "lxc.apparmor.allow_nesting", "lxc.apparmor.profile", "lxc.apparmor.raw",
	"lxc.arch", "lxc.autodev", "lxc.autodev.tmpfs.size", "lxc.cap.drop", "lxc.cap.keep",
	"lxc.cgroup.", "lxc.cgroup2.", "lxc.console.buffer.size", "lxc.console.logfile", "lxc.console.path",
	"lxc.console.rotate", "lxc.console.size", "lxc.environment", "lxc.environment.", "lxc.ephemeral", "lxc.execute.cmd",
	"lxc.group", "lxc.hook.", "lxc.idmap", "lxc.include", "lxc.init.", "lxc.keyring.session", "lxc.log.file",
	"lxc.log.level", "lxc.log.syslog", "lxc.monitor.", "lxc.mount.auto", "lxc.mount.entry", "lxc.mount.fstab",
	"lxc.namespace.", "lxc.net.", "lxc.no_new_privs", "lxc.prlimit.", "lxc.proc.", "lxc.pty.max",
	"lxc.rootfs.managed", "lxc.rootfs.mount", "lxc.rootfs.options", "lxc.rootfs.path", "lxc.sched.core",
	"lxc.seccomp.", "lxc.selinux.", "lxc.signal.", "lxc.start.", "lxc.sysctl.", "lxc.time.", "lxc.tty.", "lxc.uts.name",
}

// wrong returns the first line that liblxc refuses, or "". With such a line it
// loads no part of the config.
func (c config) wrong() string {
	for _, line := range c.lines {
		trimmed := strings.Trim(line, " \t\r\v\f")
		key, _, ok := setting(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || !strings.HasPrefix(trimmed, "lxc."):
		case !ok || !known(key):
			return trimmed
		}
	}
	return ""
}

func known(key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		return k == key || strings.HasSuffix(k, ".") && strings.HasPrefix(key, k) && key != k
	})
}
