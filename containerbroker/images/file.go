package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// Import copies the file at path, a unified LXD image or a disk, into the
// cache. The parameter as holds the reference, os/release[/variant]. If it is
// empty, the reference is file:PATH#sha256=…. digest, if set, is the required
// sha256 of the file. Import returns fault.Invalid if the file is not a valid
// image, and fault.NotFound if it does not exist.
func (c *Cache) Import(ctx context.Context, path, as, digest string, progress Progress) (Artifact, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Artifact{}, err
	}
	if digest != "" && !digestPattern.MatchString(digest) {
		return Artifact{}, fault.New(fault.Invalid, "cannot import %s: the digest must be 64 hex digits", path)
	}
	computed := as == "" && digest == ""
	if as == "" {
		if digest == "" {
			if digest, err = sumFile(ctx, path); err != nil {
				return Artifact{}, notImported(openError(path, err))
			}
		}
		as = Ref{Kind: kindFile, Location: path, Digest: digest}.String()
	}
	r, err := ParseRef(as)
	if err != nil {
		return Artifact{}, err
	}
	if r.Kind != kindName && (r.Kind != kindFile || r.Location != path) {
		return Artifact{}, fault.New(fault.Invalid, "cannot import %s as %s: the cache takes a file as os/release[/variant]", path, r)
	}
	if r.Digest != "" {
		digest = r.Digest
	}
	report := func(message string, percent int) {
		if progress != nil {
			progress(message, percent)
		}
	}
	work, done, err := c.workDir(ctx)
	if err != nil {
		return Artifact{}, err
	}
	defer done()
	p, err := c.copyIn(ctx, path, digest, job{ref: r, work: work, report: report})
	if err != nil {
		return Artifact{}, notImported(err)
	}
	p.computed = computed
	format, err := sniffFormat(p.paths[0])
	if err != nil {
		return Artifact{}, err
	}
	unlock, err := c.lock(ctx, key(r, format), report)
	if err != nil {
		return Artifact{}, err
	}
	defer unlock()
	return c.admit(ctx, r, format, sourceLocal, p)
}

// notImported makes a whole sentence of a source's fault.NotFound, which only
// says e.g. "has no file X". It returns other errors unchanged.
func notImported(err error) error {
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "cannot import the image: this host %w", err)
	}
	return err
}

// fileSource serves file: references.
type fileSource struct{ c *Cache }

func (fileSource) name() string { return sourceFile }

func (s fileSource) fetch(ctx context.Context, j job) (product, error) {
	return s.c.copyIn(ctx, j.ref.Location, j.ref.Digest, j)
}

// copyIn copies a file of the host into the work directory, because the
// original might change between the check and the use.
func (c *Cache) copyIn(ctx context.Context, path, digest string, j job) (product, error) {
	in, err := openRegular(path)
	if err != nil {
		return product{}, openError(path, err)
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return product{}, err
	}
	if info.Size() > maxImageSize {
		return product{}, fault.New(fault.Invalid, "cannot use %s: it has %d bytes, more than 8 GiB", path, info.Size())
	}
	if err := c.needSpace(info.Size()); err != nil {
		return product{}, err
	}
	j.report("copying "+path, 0)
	target := filepath.Join(j.work, "image")
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return product{}, err
	}
	// Leave out bytes that were appended after Stat.
	_, err = io.Copy(out, io.LimitReader(&ctxReader{ctx, in}, info.Size()))
	if err := errors.Join(err, out.Close()); err != nil {
		return product{}, fmt.Errorf("cannot copy %s: %w", path, err)
	}
	return product{paths: []string{target}, digest: digest}, nil
}

// openRegular opens a file for reading. It returns fault.Invalid if the file is
// not a regular file, e.g. a fifo, whose opening could block for ever.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Invalid, "it is not a regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func openError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "has no file %s", path)
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}

// sniffFormat returns the format of a file, which it detects from the first
// sector.
func sniffFormat(path string) (Format, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 4)
	if _, err := io.ReadFull(f, head); err != nil {
		return "", fault.New(fault.Invalid, "cannot use the file: it is too short to be an image")
	}
	if bytes.Equal(head, qcow2Magic) || bootable(f) {
		return FormatDisk, nil
	}
	return FormatLXD, nil
}
