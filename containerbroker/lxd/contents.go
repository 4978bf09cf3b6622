package lxd

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// backupRoot is the folder of a container in a backup of LXD or Incus.
const backupRoot = "backup/container/"

// Contents describes the files of an instance by their paths. Two instances with
// equal contents have the same files with the same types, owners, modes, times,
// extended attributes (which include ACLs and file capabilities), hard links,
// device numbers and data. Owners are those that the guest sees.
type Contents map[string]Entry

// Entry is a digest of a file's properties and data.
type Entry [sha256.Size]byte

// ReadContents reads a backup to its end.
func ReadContents(backup io.Reader) (Contents, error) {
	all := reading{entries: Contents{}, links: map[string][]string{}}
	end := &tail{Reader: backup}
	r := tar.NewReader(end)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = all.add(h, r)
		}
		if err != nil {
			return nil, fault.New(fault.Transient, "cannot read the backup: %w", err)
		}
	}
	if _, err := io.Copy(io.Discard, end); err != nil {
		return nil, fault.New(fault.Transient, "cannot read the backup: %w", err)
	}
	if !end.whole() {
		return nil, fault.New(fault.Transient, "the backup is cut short")
	}
	if len(all.entries) == 0 {
		return nil, fault.New(fault.Transient, "the backup has no files of a container")
	}
	return all.contents(), nil
}

// tail remembers the last bytes that were read. A tar reader takes an archive
// that ends between two files as whole.
type tail struct {
	io.Reader
	size int64
	last []byte
}

const (
	tarBlock = 512
	tarEnd   = 2 * tarBlock // zero bytes at the end of an archive
)

func (t *tail) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.size += int64(n)
	t.last = append(t.last, p[max(0, n-tarEnd):n]...)
	t.last = slices.Clone(t.last[max(0, len(t.last)-tarEnd):])
	return n, err
}

// whole reports whether the archive has its end.
func (t *tail) whole() bool {
	return t.size%tarBlock == 0 && len(t.last) == tarEnd && !slices.ContainsFunc(t.last, func(b byte) bool { return b != 0 })
}

// reading holds the files read so far. links lists the further names of a file
// with several names, by the name that comes first in the backup.
type reading struct {
	entries Contents
	links   map[string][]string
}

func (a reading) add(h *tar.Header, data io.Reader) error {
	name, inside := strings.CutPrefix(path.Clean(h.Name), backupRoot)
	if !inside || name == "backup.yaml" { // the daemon writes backup.yaml anew
		return nil
	}
	if _, twice := a.entries[name]; twice {
		return fmt.Errorf("it has %q twice", name)
	}
	if h.Typeflag == tar.TypeLink {
		first := strings.TrimPrefix(path.Clean(h.Linkname), backupRoot)
		a.links[first] = append(a.links[first], name)
		a.entries[name] = Entry{}
		return nil
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%c %o %d %d %d %q %d %d %d\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Size, h.Linkname, h.Devmajor, h.Devminor, h.ModTime.Unix())
	for _, key := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		if strings.HasPrefix(key, "SCHILY.xattr.") {
			fmt.Fprintf(sum, "%q=%q\n", key, h.PAXRecords[key])
		}
	}
	if _, err := io.Copy(sum, data); err != nil {
		return err
	}
	a.entries[name] = Entry(sum.Sum(nil))
	return nil
}

// contents gives all names of a file an entry that depends on all of them,
// because the order of the names in a backup is not fixed.
func (a reading) contents() Contents {
	for first, others := range a.links {
		names := slices.Sorted(slices.Values(append(others, first)))
		sum := sha256.New()
		entry := a.entries[first]
		fmt.Fprintf(sum, "%x %q", entry, names)
		for _, name := range names {
			a.entries[name] = Entry(sum.Sum(nil))
		}
	}
	return a.entries
}

// Difference returns the path of a file in which the contents differ, and the
// number of such files. The number is 0 if the contents are equal.
func (c Contents) Difference(other Contents) (example string, count int) {
	differ := func(name string) {
		if count++; example == "" || cmp.Less(name, example) {
			example = name
		}
	}
	for name, entry := range c {
		if found, ok := other[name]; !ok || found != entry {
			differ(name)
		}
	}
	for name := range other {
		if _, ok := c[name]; !ok {
			differ(name)
		}
	}
	return example, count
}
