package lxc

import (
	"errors"
	"os"
	"path"
	"strings"
)

// writer writes files into a guest's root filesystem. All that it makes belongs
// to the guest's root. After an error it does nothing more.
type writer struct {
	root     *os.Root
	uid, gid int
	err      error
}

func (d *Driver) writeTo(root string, privileged bool) (*writer, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	w := &writer{root: r}
	w.uid, w.gid = d.guestRoot(privileged)
	return w, nil
}

// folder reports whether the guest has a folder.
func (w *writer) folder(name string) bool {
	info, err := w.root.Stat(name)
	return err == nil && info.IsDir()
}

// seed writes cloud-init's seed in a guest that has cloud-init.
func (w *writer) seed(files []seedFile) {
	if !w.folder("etc/cloud") {
		return
	}
	at := ""
	for part := range strings.SplitSeq(seedDir, "/") {
		at = path.Join(at, part)
		w.makeFolder(at)
	}
	has := map[string]bool{}
	for _, f := range files {
		has[f.name] = true
		w.file(path.Join(seedDir, f.name), f.text, f.mode)
	}
	if w.err == nil && !has["network-config"] {
		if err := w.root.Remove(path.Join(seedDir, "network-config")); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.err = err
		}
	}
}

func (w *writer) makeFolder(name string) {
	if w.err != nil || w.folder(name) {
		return
	}
	if w.err = w.root.Mkdir(name, 0o755); w.err == nil {
		w.err = w.root.Lchown(name, w.uid, w.gid)
	}
}

// file replaces a file durably.
func (w *writer) file(name, text string, mode os.FileMode) {
	if w.err != nil {
		return
	}
	tmp := path.Join(path.Dir(name), ".hostler-tmp")
	if err := w.root.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.err = err
		return
	}
	f, err := w.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		w.err = err
		return
	}
	_, err = f.WriteString(text)
	w.err = errors.Join(err, f.Chown(w.uid, w.gid), f.Chmod(mode), f.Sync(), f.Close())
	if w.err == nil {
		w.err = w.root.Rename(tmp, name)
	}
}
