package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/run"
)

// The names of sources.
const (
	sourceLocal   = "local"
	sourceBuild   = "build"
	sourceFile    = "file"
	sourceHTTPS   = "https"
	sourceStreams = "simplestreams:" // followed by the server's name
)

// source is a place from which images come.
type source interface {
	name() string
	// fetch puts the image's files into j.work. If the source does not have the
	// image, it returns fault.NotFound with the reason.
	fetch(ctx context.Context, j job) (product, error)
}

// job is a request for an image from a source.
type job struct {
	ref    Ref
	format Format
	work   string // a directory for the job alone
	report Progress
}

// runner returns the Runner for the job's programs.
func (c *Cache) runner(j job) run.Runner { return jobRunner{c.o.Runner, key(j.ref, j.format)} }

// jobRunner names the job in the commands that it runs.
type jobRunner struct {
	run.Runner
	job string
}

// Run implements run.Runner.
func (r jobRunner) Run(ctx context.Context, c run.Command) (run.Result, error) {
	c.Job = r.job
	return r.Runner.Run(ctx, c)
}

// product is a source's result. paths has a single file, or the metadata tar
// and the squashfs.
type product struct {
	paths []string
	// digest is the required digest of the whole image, if known.
	digest string
	// computed is true if the reference's digest was computed from the file
	// itself. Errors must not show such a digest unless the file is an image.
	computed bool
}

// openSources creates the configured sources.
func (c *Cache) openSources() error {
	for _, name := range c.o.Sources {
		switch {
		case name == sourceLocal:
			c.sources = append(c.sources, localSource{})
		case name == sourceBuild:
			c.sources = append(c.sources, buildSource{c})
		case strings.HasPrefix(name, sourceStreams):
			s, err := c.streams(strings.TrimPrefix(name, sourceStreams))
			if err != nil {
				return err
			}
			c.sources = append(c.sources, s)
		default:
			return fault.New(fault.Invalid, "cannot use image source %q: use local, build or simplestreams:NAME", name)
		}
	}
	return nil
}

// localSource marks the place in the order of sources at which the hypervisor
// is asked for its own images. The cache is searched before all sources.
type localSource struct{}

func (localSource) name() string { return sourceLocal }

func (localSource) fetch(context.Context, job) (product, error) {
	return product{}, fault.New(fault.NotFound, "has no such image")
}

// streams returns the configured simplestreams server of that name as a source.
func (c *Cache) streams(name string) (source, error) {
	address, ok := c.o.Servers[name]
	if !ok {
		return nil, fault.New(fault.Invalid, "cannot use image source simplestreams:%s: no server of that name is configured", name)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, fault.New(fault.Invalid, "cannot use image source simplestreams:%s: its address is not an https URL", name)
	}
	return streamSource{c: c, server: name, base: u}, nil
}

// ask tries the sources that may have r, in their order. own may be nil.
func (c *Cache) ask(ctx context.Context, r Ref, format Format, own Own, report Progress) (Artifact, error) {
	candidates := c.sources
	switch r.Kind {
	case kindFile:
		candidates = []source{fileSource{c}}
	case kindHTTPS:
		candidates = []source{httpsSource{c}}
	case kindSimplestreams:
		s, err := c.streams(r.Server)
		if err != nil {
			return Artifact{}, err
		}
		candidates = []source{s}
	}
	var why []string
	var failed []error
	for _, s := range candidates {
		if s.name() == sourceLocal && own != nil {
			id, err := own(ctx)
			if err == nil {
				return Artifact{Reference: r.String(), Own: id}, nil
			}
			if !fault.Is(err, fault.NotFound) {
				return Artifact{}, fmt.Errorf("cannot get image %s: %w", r.shown(), err)
			}
		}
		a, err := c.obtain(ctx, s, r, format, report)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return Artifact{}, ctx.Err()
		}
		if fault.Is(err, fault.NotFound) {
			why = append(why, s.name()+" "+err.Error())
			continue
		}
		failed = append(failed, fmt.Errorf("%s: %w", s.name(), err))
	}
	if len(failed) > 0 {
		// The error is transient if any source failed with a transient error.
		kind := fault.KindOf(failed[0])
		if slices.ContainsFunc(failed, func(err error) bool { return fault.KindOf(err) == fault.Transient }) {
			kind = fault.Transient
		}
		return Artifact{}, fault.New(kind, "cannot get image %s: %w", r.shown(), errors.Join(failed...))
	}
	if r.Kind == kindName {
		if err := c.CheckAvailable(ctx, r.String(), format, nil); fault.Is(err, fault.NotFound) {
			return Artifact{}, err
		}
	}
	return Artifact{}, fault.New(fault.NotFound, "cannot find image %s: %s", r.shown(), strings.Join(why, "; "))
}

// obtain fetches r from a source, checks the image and keeps it in the cache.
func (c *Cache) obtain(ctx context.Context, s source, r Ref, format Format, report Progress) (Artifact, error) {
	work, done, err := c.workDir(ctx)
	if err != nil {
		return Artifact{}, err
	}
	defer done()
	p, err := s.fetch(ctx, job{ref: r, format: format, work: work, report: report})
	if err != nil {
		return Artifact{}, err
	}
	report("checking "+r.String(), -1)
	a, err := c.admit(ctx, r, format, s.name(), p)
	if err != nil {
		return Artifact{}, err
	}
	c.log.Info("image is ready", "image", oneline.Address(a.Reference), "source", s.name(), "digest", a.Digest, "bytes", a.Size)
	report(r.shown()+" is ready", 100)
	return a, nil
}

// admit checks a product and keeps it in the cache. Every file of the cache
// passes through admit. from is the name of the source.
func (c *Cache) admit(ctx context.Context, r Ref, format Format, from string, p product) (Artifact, error) {
	e := entry{Reference: r.String(), Format: format, Source: from, Created: c.o.Clock().UTC()}
	whole := sha256.New()
	for _, path := range p.paths {
		b, err := hashInto(ctx, path, whole)
		if err != nil {
			return Artifact{}, err
		}
		e.Files = append(e.Files, b)
	}
	e.Digest = hex.EncodeToString(whole.Sum(nil))
	if p.digest != "" && p.digest != e.Digest {
		// The error leaves out the file's digest, because the file may be
		// secret, e.g. /etc/shadow.
		return Artifact{}, fault.New(fault.Invalid, "cannot use image %s: the file has another sha256; `sha256sum FILE` prints it", r.shown())
	}
	name := r.shown()
	if p.computed {
		name = r.Location
	}
	parts := []Part{partUnified}
	switch {
	case format == FormatDisk:
		parts = []Part{partDisk}
	case len(p.paths) == 2:
		parts = []Part{partMetadata, partRootfs}
	}
	for i, path := range p.paths {
		if err := c.scanFile(ctx, path, parts[i]); err != nil {
			return Artifact{}, fmt.Errorf("cannot use image %s: %w", name, err)
		}
	}
	return c.keep(e, p.paths)
}

func (c *Cache) scanFile(ctx context.Context, path string, part Part) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return c.o.Scan(ctx, f, info.Size(), Expect{Part: part, Arch: c.o.Arch})
}

// hashInto returns the size and sha256 of a file, and also writes the file's
// content to whole.
func hashInto(ctx context.Context, path string, whole io.Writer) (blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return blob{}, err
	}
	defer func() { _ = f.Close() }()
	own := sha256.New()
	n, err := io.Copy(io.MultiWriter(own, whole), &ctxReader{ctx, f})
	if err != nil {
		return blob{}, fmt.Errorf("cannot read %s: %w", filepath.Base(path), err)
	}
	return blob{SHA256: hex.EncodeToString(own.Sum(nil)), Size: n}, nil
}
