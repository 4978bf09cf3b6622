package lxd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// guestsInit looks into a guest from the host, through /proc/PID of the guest's
// init. It returns the init's name. plain is true if neither systemd nor OpenRC
// boots the guest, so that there is nothing else to wait for. This saves a
// command inside the guest, which would cost LXD a process of some 30 MiB. If
// the agent cannot look into the guest, e.g. because it lacks the rights, plain
// is false, and the caller must run a command in the guest.
func (d *Driver) guestsInit(pid int64) (name string, plain bool) {
	process := filepath.Join(d.opts.Proc, strconv.FormatInt(pid, 10))
	comm, err := os.ReadFile(filepath.Join(process, "comm"))
	if err != nil {
		return "", false
	}
	name = clean(strings.TrimSuffix(string(comm), "\n"), 64)
	if name == "systemd" || strings.HasPrefix(name, "openrc") {
		return name, false
	}
	// Symlinks in the guest must not lead out of it.
	root, err := os.OpenRoot(filepath.Join(process, "root"))
	if err != nil {
		return name, false
	}
	defer func() { _ = root.Close() }()
	for _, path := range []string{"run/openrc", "sbin/openrc", "usr/sbin/openrc", "lib/systemd/systemd", "usr/lib/systemd/systemd"} {
		if _, err := root.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return name, false
		}
	}
	return name, true
}
