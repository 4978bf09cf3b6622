package conffiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/declare"
	"hostler/internal/fault"
)

// folderReader remembers, between two readings of a folder, which files are
// absent.
type folderReader struct {
	d   *Declarations
	dir string
	// missing maps each absent file to the time since when it is absent. seen
	// lists the known files.
	missing map[string]time.Time
	seen    []string
	// since is the time of the first reading.
	since time.Time
	// device is the filesystem of this reading. before is the filesystem of the
	// last reading that was put in force, or "" if it is unknown.
	device, before string
}

// newReader returns a reader that knows of no absent file.
func (d *Declarations) newReader() *folderReader {
	return &folderReader{d: d, dir: d.o.Dir, missing: map[string]time.Time{}}
}

// read reads the files of the folder. f.Moved says whether the folder's
// filesystem changed since the last reading, even if an earlier process made
// that reading.
func (r *folderReader) read(ctx context.Context, a Applier) (f declare.Folder, next time.Duration, written []string, err error) {
	stamps := stampsOf(r.dir)
	r.d.mu.Lock()
	r.d.readFiles = stamps
	r.d.mu.Unlock()
	present, err := declarationFiles(r.dir)
	if err != nil {
		return f, 0, nil, err
	}
	gone, err := goneFiles(ctx, r.dir, present, a)
	if err != nil {
		return f, 0, nil, err
	}
	for _, path := range r.seen { // includes files that were never in force
		if !slices.Contains(present, path) && !slices.Contains(gone, path) {
			gone = append(gone, path)
		}
	}
	f = declare.Folder{Path: r.dir, Files: map[string]declare.File{}}
	total := 0
	for _, path := range present {
		content, err := readDeclaration(path)
		if total += len(content); total > maxDeclarations {
			err = fault.New(fault.Invalid, "the files of %s are longer than %d MiB together; take some out", r.dir, maxDeclarations>>20)
		}
		if errors.Is(err, errBeingWritten) {
			written = append(written, path)
		}
		if err != nil {
			content = nil
		}
		f.Files[path] = declare.File{Content: content, Err: err}
	}
	now := r.d.o.Now()
	for path := range r.missing {
		if !slices.Contains(gone, path) {
			delete(r.missing, path)
		}
	}
	if r.since.IsZero() {
		r.since = now
	}
	f.Fresh = now.Sub(r.since) < goneFor
	r.seen = slices.Clone(present)
	for _, path := range gone {
		since, known := r.missing[path]
		if !known {
			since, r.missing[path] = now, now
		}
		if left := goneFor - now.Sub(since); left > 0 {
			r.seen, f.Settling = append(r.seen, path), append(f.Settling, path)
			if next == 0 || left < next {
				next = left
			}
		}
	}
	if r.before == "" {
		if r.before, err = r.d.o.Device(ctx); err != nil {
			return f, 0, nil, err
		}
	}
	if r.device, err = deviceOf(r.dir); err != nil {
		return f, 0, nil, err
	}
	f.Moved = r.before != "" && r.before != r.device
	return f, next, written, nil
}

// Unread returns a text if the files changed since they were read, or "".
func (d *Declarations) Unread() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := stampsOf(d.o.Dir); now == nil || !maps.Equal(now, d.readFiles) {
		return "the files of " + d.o.Dir + " changed since they were read"
	}
	return ""
}

// deviceOf returns a folder's filesystem as MAJOR:MINOR.
func deviceOf(dir string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", dir, err)
	}
	return fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev)), nil
}

// remember stores the folder's filesystem.
func (r *folderReader) remember(ctx context.Context) error {
	if r.before == r.device {
		return nil
	}
	if err := r.d.o.SetDevice(ctx, r.device); err != nil {
		return err
	}
	r.before = r.device
	return nil
}

// goneFiles lists the files of the folder whose declarations are in force and
// that are not in present.
func goneFiles(ctx context.Context, dir string, present []string, a Applier) ([]string, error) {
	sources, err := a.Files(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(sources, func(path string) bool {
		return filepath.Dir(path) != dir || slices.Contains(present, path)
	}), nil
}

// readDeclaration reads a regular file. It refuses others, because a read of a
// pipe would block. It fails with errBeingWritten while another process writes
// the file.
func readDeclaration(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if target, unlinked := os.Readlink(path); errors.Is(err, fs.ErrNotExist) && unlinked == nil {
		return nil, fmt.Errorf("it is a link to %s, which does not exist; mend or remove the link", target)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "it is not a file; remove it, or give it a name without this ending")
	}
	return readWhole(path, maxDeclaration)
}
