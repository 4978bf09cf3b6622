package lxc

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// fileCopies is the file in which liblxc lists the copies that show the files of
// an instance: the folder of instances of each and its name, a line each.
const fileCopies = "lxc_snapshots"

// refuseCopies fails if the root filesystem of another instance shows files of an
// instance, as that of a copy by `lxc-copy -s` does. They would be lost with the
// instance.
func (d *Driver) refuseCopies(e entry) error {
	used, err := d.roots()
	if err != nil {
		return err
	}
	for path := range used {
		if !e.holds(path) {
			delete(used, path)
		}
	}
	names := slices.Concat(slices.Collect(maps.Values(used))...)
	var copies []string
	for _, name := range names {
		if name != e.name {
			copies = append(copies, d.instance(name))
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

// copiesElsewhere returns the copies of an instance in other folders of instances.
func (d *Driver) copiesElsewhere(e entry) (copies []string) {
	text, _ := readFile(filepath.Join(e.dir, fileCopies), maxConfig)
	lines := strings.Split(string(text), "\n")
	for n := 0; n+1 < len(lines); n += 2 {
		dir := filepath.Join(lines[n], lines[n+1])
		text, _ := readFile(filepath.Join(dir, fileConfig), maxConfig) // a copy that is gone may still be listed
		if slices.ContainsFunc(layers(parseConfig(string(text))), e.holds) {
			copies = append(copies, dir)
		}
	}
	return copies
}
