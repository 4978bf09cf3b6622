package lxd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"hostler/internal/paths"
	"hostler/internal/run"
)

// running returns the process of a daemon whose folder is dir, and whether
// there is one. A daemon runs for some moments before its socket exists, e.g.
// if its starter was killed meanwhile. A second daemon in the same folder would
// ruin the database that the first daemon is making. Daemons inside containers
// also appear in /proc, but have other pid namespaces.
func (i *Initialiser) running(dir string) (int, bool) {
	proc := i.opts.Paths.Host("/proc")
	own, err := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	if err != nil {
		return 0, false
	}
	entries, _ := filepath.Glob(filepath.Join(proc, "[1-9]*"))
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || !isDaemon(entry, dir) {
			continue
		}
		if namespace, err := os.Readlink(filepath.Join(entry, "ns/pid")); err == nil && namespace == own {
			return pid, true
		}
	}
	return 0, false
}

// isDaemon reports whether the process behind a /proc entry is LXD's daemon
// with the folder dir. LXD's helpers are the same program with a verb as first
// argument.
func isDaemon(entry, dir string) bool {
	command, err := os.ReadFile(filepath.Join(entry, "cmdline"))
	if err != nil {
		return false
	}
	argv := strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00")
	if filepath.Base(argv[0]) != "lxd" || len(argv) > 1 && !strings.HasPrefix(argv[1], "-") {
		return false
	}
	environment, err := os.ReadFile(filepath.Join(entry, "environ"))
	if err != nil {
		return false
	}
	set := strings.Split(string(environment), "\x00")
	if slices.Contains(set, "LXD_DIR="+dir) {
		return true
	}
	named := slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, "LXD_DIR=") })
	return !named && dir == paths.DebianLXDDir
}

// alive returns a check that fails once the process has ended. Its error quotes
// the end of log.
func alive(pid int, log string) func() error {
	return func() error {
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil
		}
		data, _ := os.ReadFile(log)
		return fmt.Errorf("it ended: %s (log: %s)", run.Tail(data), log)
	}
}
