package guestprobe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hostler/internal/oneline"
)

// InitOf looks into a container from the host, through /proc/PID of its init. It
// returns the init's name. plain is true if neither systemd nor OpenRC boots the
// guest, so that there is nothing else to wait for. This saves a command inside
// the guest, which would cost e.g. LXD a process of some 30 MiB. If the agent
// cannot look into the guest, e.g. because it lacks the rights, plain is false,
// and the caller must run a command in the guest.
func InitOf(proc string, pid int64) (name string, plain bool) {
	process := filepath.Join(proc, strconv.FormatInt(pid, 10))
	comm, err := os.ReadFile(filepath.Join(process, "comm"))
	if err != nil {
		return "", false
	}
	name = oneline.Clean(strings.TrimSuffix(string(comm), "\n"), 64)
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
