package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxWindow bounds a decompressor's memory, in bytes. It is enough for zstd
	// -19 --long=27 and xz -9.
	maxWindow = 128 << 20
	// maxDocument bounds metadata.yaml and each template, in bytes.
	maxDocument = 64 << 10
	maxTemplate = 64
)

// unpack returns the tar stream in r, and a function to call at its end. It
// detects the compression by magic bytes.
func unpack(r io.ReaderAt, size int64) (io.Reader, func(), error) {
	head := make([]byte, 512)
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	head = head[:n]
	whole := bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<20)
	nothing := func() {}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(whole)
		return z, nothing, clean(err, "its gzip data is damaged")
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		z, err := newXZReader(whole)
		return z, nothing, clean(err, "its xz data is damaged")
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(whole, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, clean(err, "its zstd data is damaged")
		}
		return z, z.Close, nil
	case len(head) >= 262 && string(head[257:262]) == "ustar":
		return whole, nothing, nil
	case bytes.HasPrefix(head, squashfsMagic):
		return nil, nil, refuse("it is a squashfs alone, without metadata")
	}
	return nil, nil, refuse("it is not a tar, tar.gz, tar.xz or tar.zst")
}

// counting is a reader that adds every unpacked byte to the budget. It stops
// when the context ends.
type counting struct {
	ctx    context.Context
	r      io.Reader
	budget *budget
}

func (c *counting) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if over := c.budget.grow(int64(n)); over != nil {
		return n, over
	}
	return n, err
}

// tarWalk is the state of an archive's scan.
type tarWalk struct {
	budget
	expect   Expect
	seen     map[string]byte // type of every name
	metadata *metadata
	tpl      []string // template files that exist
}

func scanTar(ctx context.Context, r io.ReaderAt, size int64, expect Expect) error {
	stream, closeStream, err := unpack(r, size)
	if err != nil {
		return err
	}
	defer closeStream()
	w := &tarWalk{budget: budget{packed: size}, expect: expect, seen: map[string]byte{}}
	in := &counting{ctx, stream, &w.budget}
	t := tar.NewReader(in)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.take(h, t)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return clean(err, "its tar is damaged")
		}
	}
	// Refuse data after the archive, because some unpackers would also read a
	// second archive there.
	if err := onlyZeros(in); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return clean(err, "its tar is damaged")
	}
	return w.finish()
}

func onlyZeros(r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) != 0 {
			return refuse("data follows the end of its tar")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take checks an entry of the archive.
func (w *tarWalk) take(h *tar.Header, body io.Reader) error {
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if err := w.entry(name); err != nil {
		return err
	}
	if h.Size < 0 || h.Size > maxUnpacked {
		return refuse("%q claims %d bytes", clip(name), h.Size)
	}
	// Refuse sparse files, which are tiny in the archive but can fill the disk.
	if h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != "" {
		return refuse("%q is a sparse file", clip(name))
	}
	if err := w.throughLink(name); err != nil {
		return err
	}
	was, again := w.seen[name]
	if again && (was != tar.TypeDir || h.Typeflag != tar.TypeDir) {
		return refuse("%q is in it twice", clip(name))
	}
	w.seen[name] = h.Typeflag
	top, rest, _ := strings.Cut(name, "/")
	switch {
	case name == ".":
		return w.mustBe(h, name, tar.TypeDir)
	case name == "metadata.yaml":
		return w.takeMetadata(h, body)
	case name == "templates":
		return w.mustBe(h, name, tar.TypeDir)
	case top == "templates":
		return w.takeTemplate(h, rest, body)
	case name == "rootfs" && w.expect.Part == partUnified:
		return w.mustBe(h, name, tar.TypeDir)
	case top == "rootfs" && w.expect.Part == partUnified:
		return w.takeRootfs(h, name)
	}
	return refuse("%q is not allowed in it", clip(name))
}

// cleanName returns the name in its shortest form. It refuses names that
// different programs could resolve to different places.
func cleanName(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", refuse("an entry has an empty or broken name")
	}
	if strings.HasPrefix(name, "/") {
		return "", refuse("%q is an absolute name", clip(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refuse("%q leaves its folder", clip(name))
		}
	}
	if len(name) > 4096 {
		return "", refuse("an entry's name is longer than 4096 bytes")
	}
	return path.Clean(name), nil
}

// throughLink refuses an entry below a link or file of the same archive,
// because unpacking such an entry could write anywhere.
func (w *tarWalk) throughLink(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if kind, ok := w.seen[dir]; ok && kind != tar.TypeDir {
			return refuse("%q is below %q, which is not a folder", clip(name), clip(dir))
		}
	}
	return nil
}

func (w *tarWalk) mustBe(h *tar.Header, name string, kind byte) error {
	if h.Typeflag != kind {
		return refuse("%q is of type %q and must be of type %q", name, h.Typeflag, kind)
	}
	return nil
}

// takeRootfs accepts every type of file that a system needs. It checks the
// targets of hard links, because only these could lead out of the rootfs when
// the archive is unpacked.
func (w *tarWalk) takeRootfs(h *tar.Header, name string) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil
	case tar.TypeLink:
		target, err := cleanName(h.Linkname)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(target, "rootfs/") {
			return refuse("the hard link %q leaves the rootfs", clip(name))
		}
		if err := w.throughLink(target); err != nil {
			return err
		}
		if kind, ok := w.seen[target]; !ok || kind == tar.TypeDir || target == name {
			return refuse("the hard link %q has no earlier entry as its target", clip(name))
		}
		return nil
	}
	return refuse("%q has the unknown type %q", clip(name), h.Typeflag)
}
