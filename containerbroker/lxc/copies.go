package lxc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// fileCopies is the file in which liblxc lists the copies that show the files of
// an instance: the folder of instances of each and its name, a line each.
const fileCopies = "lxc_snapshots"

// dirSnapshots is the folder of an instance in which liblxc keeps the copies that
// lxc-snapshot makes, with config and root filesystem each.
const dirSnapshots = "snaps"

// refuseSnapshots fails if an instance has snapshots, as lxc-destroy does. They
// would be lost with the instance.
func (d *Driver) refuseSnapshots(e entry) error {
	found, err := os.ReadDir(filepath.Join(e.dir, dirSnapshots))
	if len(found) > 0 {
		return fault.New(fault.NeedsOperator, "it has snapshots, e.g. %s, and would lose them: delete them first with `lxc-snapshot -P %s -n %s -d ALL`",
			found[0].Name(), d.opts.Path, e.name)
	}
	return unless(err, fs.ErrNotExist)
}

// refuseCopies fails if the root filesystem of another instance shows files of an
// instance, as that of a copy by `lxc-copy -s` does. They would be lost with the
// instance.
func (d *Driver) refuseCopies(e entry) error {
	found, err := os.ReadDir(d.opts.Path)
	if err != nil {
		return err
	}
	var copies []string
	for _, f := range found {
		if hidden(f.Name()) || f.Name() == e.name {
			continue
		}
		if shows, _ := d.shows(d.instance(f.Name()), e); shows { // liblxc's list has those that cannot be read
			copies = append(copies, d.instance(f.Name()))
		}
	}
	copies = append(copies, d.copiesElsewhere(e)...)
	if len(copies) == 0 {
		return nil
	}
	dir := slices.Min(copies)
	return fault.New(fault.NeedsOperator, "%s is a copy that shows its files and would lose them: delete that first, e.g. with `lxc-destroy -P %s -n %s`",
		dir, filepath.Dir(dir), filepath.Base(dir))
}

// holds reports whether a path is removed with an instance.
func (e entry) holds(path string) bool {
	return path != "" && (path == e.root && e.inPool || strings.HasPrefix(path, e.dir+"/"))
}

// shows reports whether the config of the instance in dir has files of an instance
// in its root filesystem.
func (d *Driver) shows(dir string, e entry) (bool, error) {
	text, err := readFile(filepath.Join(dir, fileConfig), maxConfig)
	return err == nil && slices.ContainsFunc(layers(parseConfig(string(text))), e.holds), err
}

// copiesElsewhere returns the copies of an instance in any folder of instances, as far
// as liblxc's list has them. One whose config cannot be read may still be a copy.
func (d *Driver) copiesElsewhere(e entry) (copies []string) {
	text, _ := readFile(filepath.Join(e.dir, fileCopies), maxConfig)
	lines := strings.Split(string(text), "\n")
	for n := 0; n+1 < len(lines); n += 2 {
		dir := filepath.Join(lines[n], lines[n+1])
		// A copy that is gone may still be listed.
		if shows, err := d.shows(dir, e); shows || err != nil && !errors.Is(err, fs.ErrNotExist) {
			copies = append(copies, dir)
		}
	}
	return copies
}
