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

	"hostler/internal/run"
)

// running returns the process id of a daemon whose state folder is dir, and
// whether there is one. A daemon runs for some moments before its socket
// exists, so an agent that was restarted may find it without a socket. A second
// daemon in the same folder would ruin the database that the first daemon is
// making. Daemons inside containers also appear in /proc, but have other pid
// namespaces.
func (i *Initialiser) running(dir string) (int, bool) {
	proc := i.opts.Paths.Host("/proc")
	own, err := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	if err != nil {
		return 0, false
	}
	entries, _ := filepath.Glob(filepath.Join(proc, "[1-9]*"))
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || !i.isDaemon(entry, dir) {
			continue
		}
		if namespace, err := os.Readlink(filepath.Join(entry, "ns/pid")); err == nil && namespace == own {
			return pid, true
		}
	}
	return 0, false
}

// isDaemon reports whether the process behind a /proc entry is LXD's daemon
// with the folder dir. LXD's helper processes run the same program, but their
// first argument is not an option.
func (i *Initialiser) isDaemon(entry, dir string) bool {
	command, err := os.ReadFile(filepath.Join(entry, "cmdline"))
	if err != nil {
		return false
	}
	argv := strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00")
	if filepath.Base(argv[0]) != filepath.Base(i.opts.Dialect.Program) || len(argv) > 1 && !strings.HasPrefix(argv[1], "-") {
		return false
	}
	environment, err := os.ReadFile(filepath.Join(entry, "environ"))
	if err != nil {
		return false
	}
	set := strings.Split(string(environment), "\x00")
	if slices.Contains(set, i.opts.Dialect.Variable+"="+dir) {
		return true
	}
	named := slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, i.opts.Dialect.Variable+"=") })
	return !named && dir == i.opts.Dialect.folder
}

// alive returns a function that returns an error once the process has ended.
// The error quotes the end of the file log.
func alive(pid int, log string) func() error {
	return func() error {
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil
		}
		data, _ := os.ReadFile(log)
		return fmt.Errorf("it ended: %s (log: %s)", run.Tail(data), log)
	}
}
