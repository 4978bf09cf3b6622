package lxc

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// The files of an instance, in its folder.
const (
	fileConfig   = "config"
	fileNote     = "hostler.json"
	fileConsole  = "console.log"
	fileStartLog = "start.log"
	dirDevices   = "devices"
)

// safeName matches names that are safe as the name of a folder, in a line of a
// config and in a path of a cgroup. Names that begin with a dot are hidden from
// liblxc's tools.
var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkName(what, name string) error {
	if !safeName.MatchString(name) {
		return fault.New(fault.Invalid, "%q cannot be %s", name, what)
	}
	return nil
}

// instance returns the folder of an instance.
func (d *Driver) instance(name string) string { return filepath.Join(d.opts.Path, name) }

// own returns a path in the agent's own folder. liblxc's tools skip it, because
// its name begins with a dot.
func (d *Driver) own(parts ...string) string {
	return filepath.Join(append([]string{d.opts.Path, "." + d.opts.Namespace}, parts...)...)
}

// pool returns a path in the pool of root filesystems.
func (d *Driver) pool(parts ...string) string { return d.own(append([]string{"pool"}, parts...)...) }

// The folders of the pool. The group of dirPrivileged is that of unprivileged
// guests, so that a guest that was privileged before finds its files there.
const (
	dirImages     = "images"
	dirGuests     = "guests"
	dirPrivileged = "privileged"
)

// rootOf returns the root filesystem that a create attempt makes. The root
// filesystems of unprivileged guests are in a folder that only the guests' own
// root and the host's can enter, so that a setuid program of a guest is no
// user's of the host. The host's root enters it by its group, and needs no
// capability for that.
func (d *Driver) rootOf(token string, privileged bool) string {
	if privileged {
		return d.pool(dirPrivileged, token)
	}
	return d.pool(dirGuests, token)
}

// guestRoot returns the host's ids of a guest's root.
func (d *Driver) guestRoot(privileged bool) (uid, gid int) {
	if privileged {
		return 0, 0
	}
	return int(d.opts.IDs.FirstUser), int(d.opts.IDs.FirstGroup)
}

// inPool reports whether a root filesystem was made by this agent.
func (d *Driver) inPool(root string) bool {
	dir := filepath.Dir(root)
	return filepath.Clean(root) == root && (dir == d.pool(dirGuests) || dir == d.pool(dirPrivileged))
}

// checkPool fails if the pool's file is there but not mounted. Every instance
// would then look half-made.
func (d *Driver) checkPool() error {
	if _, err := os.Lstat(d.own("pool.img")); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var pool, parent unix.Stat_t
	if err := unix.Stat(d.own(), &parent); err != nil {
		return err
	}
	if err := unix.Stat(d.pool(), &pool); err != nil || pool.Dev == parent.Dev {
		return fault.New(fault.Transient, "the pool of root filesystems is not mounted on %s", d.pool())
	}
	return nil
}

// prepare makes the folders that the driver needs. Guests' root passes through
// the outer folders, but cannot list them.
func (d *Driver) prepare() error {
	if err := d.checkPool(); err != nil {
		return err
	}
	if err := d.openPath(); err != nil {
		return err
	}
	uid, gid := d.guestRoot(false)
	for _, f := range []struct {
		path     string
		mode     os.FileMode
		uid, gid int
	}{
		{d.own(), 0o711, 0, 0},
		{d.own("making"), 0o700, 0, 0},
		{d.own("removed"), 0o700, 0, 0},
		{d.pool(), 0o711, 0, 0},
		{d.pool(dirImages), 0o700, uid, gid},
		{d.pool(dirGuests), 0o710, uid, 0},
		{d.pool(dirPrivileged), 0o710, 0, gid},
	} {
		info, err := os.Lstat(f.path)
		if err == nil && info.IsDir() && info.Mode().Perm()&f.mode == f.mode {
			continue
		}
		if err := os.Mkdir(f.path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := errors.Join(os.Lchown(f.path, f.uid, f.gid), os.Chmod(f.path, f.mode)); err != nil {
			return err
		}
	}
	return nil
}

// openPath makes the folder of instances, or lets guests' root pass through it. A
// folder that exists keeps its owner. It stays closed if it keeps other users from
// an instance that hostler did not make.
func (d *Driver) openPath() error {
	const pass = 0o001
	err := os.Mkdir(d.opts.Path, 0o711)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Stat(d.opts.Path)
	if err != nil || info.Mode()&pass != 0 {
		return err
	}
	found, err := os.ReadDir(d.opts.Path)
	if err != nil {
		return err
	}
	var open []string
	for _, f := range found {
		if hidden(f.Name()) || !f.IsDir() {
			continue
		}
		instance, err := f.Info()
		if errors.Is(err, os.ErrNotExist) || err == nil && instance.Mode()&pass == 0 {
			continue
		}
		if err != nil {
			return err
		}
		if n, err := readNote(d.instance(f.Name()), f.Name()); n == nil || err != nil {
			open = append(open, d.instance(f.Name()))
		}
	}
	if len(open) > 0 {
		return fault.New(fault.NeedsOperator, "cannot let guests pass through %s: other users could then enter %s: run chmod o-x %s",
			d.opts.Path, strings.Join(open, ", "), strings.Join(open, " "))
	}
	return os.Chmod(d.opts.Path, info.Mode()|pass)
}

// hidden reports whether a name in the folder of instances is none of an
// instance.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }
