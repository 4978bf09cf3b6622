package lxd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// guestsInit looks at a guest from outside, through its init's process: what
// init is called, and whether it is all there is to wait for, because neither
// systemd nor OpenRC boots this guest. A command inside would cost LXD a
// process of some 30 MiB. Where the guest cannot be seen (LXD runs elsewhere,
// or the agent may not look), plain is false and the guest has to be asked.
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
	// Links of the guest must not lead out of it.
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
