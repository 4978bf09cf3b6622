package lxc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// entry is an instance as its files describe it.
type entry struct {
	name string
	dir  string
	conf config
	// note is nil for an instance without a stamp. If damaged is set, the config or
	// the note is there but unreadable.
	note    *note
	damaged error
	// root is the root filesystem, unless rootUnknown is true because the config is
	// unreadable. rootGone is true if it is missing, inPool if hostler made it.
	root        string
	rootUnknown bool
	rootGone    bool
	inPool      bool
}

// readEntry reads an instance's files. It returns fault.NotFound if the folder
// holds no instance.
func (d *Driver) readEntry(name string) (entry, error) {
	e := entry{name: name, dir: d.instance(name)}
	e.damaged = linked(e.dir)
	path := filepath.Join(e.dir, fileConfig)
	text, err := readFile(path, maxConfig)
	if errors.Is(err, unix.ELOOP) { // LXC follows the link, so the root behind it is in use
		e.damaged = err
		if to, link := filepath.EvalSymlinks(path); link == nil {
			text, err = readFile(to, maxConfig)
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return e, fault.New(fault.NotFound, "there is no instance %q", name)
	case errors.Is(err, errUnreadable):
		e.damaged, e.rootUnknown = err, true
	case err != nil:
		return e, err
	}
	e.conf = parseConfig(string(text))
	e.note, err = readNote(e.dir, name)
	switch {
	case errors.Is(err, errUnreadable):
		e.damaged = err
	case err != nil:
		return e, err
	}
	e.root = rootPath(e.conf)
	e.inPool = d.inPool(e.root)
	if e.note != nil && e.root != "" {
		_, err := os.Lstat(e.root)
		e.rootGone = errors.Is(err, os.ErrNotExist)
	}
	return e, nil
}

// linked fails for the folder of an instance that is a link. LXC follows it, but the
// driver's locks and renames are those of the folder itself.
func linked(dir string) error {
	if info, err := os.Lstat(dir); err != nil || info.Mode()&os.ModeSymlink == 0 {
		return nil
	}
	return fmt.Errorf("%s is a symbolic link, and hostler changes no instance through a link: put the folder itself there", dir)
}

// rootPath returns the root filesystem of a config, or "" if it is not a plain
// folder.
func rootPath(c config) string {
	root := c.get(keyRoot)
	for _, kind := range []string{"dir:", "btrfs:"} {
		root = strings.TrimPrefix(root, kind)
	}
	if !filepath.IsAbs(root) {
		return ""
	}
	return filepath.Clean(root)
}

// layers returns the folders and files of which a config makes its root
// filesystem. A copy by `lxc-copy -s` has that of the original among them, e.g.
// overlay:/var/lib/lxc/web/rootfs:/var/lib/lxc/copy/overlay/delta.
func layers(c config) []string {
	paths := []string{rootPath(c)}
	for part := range strings.SplitSeq(c.get(keyRoot), ":") {
		if filepath.IsAbs(part) {
			paths = append(paths, filepath.Clean(part))
		}
	}
	return paths
}

// intact reads an instance, and fails if its note or its config is damaged.
func (d *Driver) intact(name string) (entry, error) {
	e, err := d.readEntry(name)
	if err == nil {
		err = fault.Wrap(fault.NeedsOperator, e.damaged)
	}
	return e, err
}

// lookup finds an instance that bears the stamp's namespace and uid.
func (d *Driver) lookup(name string, s containerbroker.Stamp) (entry, error) {
	e, err := d.intact(name)
	if err == nil && !e.note.owned(s) {
		err = fault.New(fault.Conflict, "it has another stamp")
	}
	return e, err
}

// noted returns the note, or an empty note for an instance without one.
func (e entry) noted() note {
	if e.note == nil {
		return note{}
	}
	return *e.note
}

// given returns what hostler noted about an interface that it made for the
// instance's machine.
func (e entry) given(name string) (givenNIC, bool) {
	nic, is := e.noted().NICs[name]
	return nic, is
}
