package images

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hostler/internal/fault"
	"hostler/internal/flight"
	"hostler/internal/oneline"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// Packages installs the packages that builds need. Package packaging implements
// it.
type Packages interface {
	// Ensure installs the named packages that are missing. Idempotent.
	Ensure(ctx context.Context, names []string, progress func(string)) error
	// Unavailable returns why the named packages cannot be installed, with the
	// remedy; nil if no obstacle is known. Unavailable changes nothing.
	Unavailable(ctx context.Context, names []string) error
}

// Mirrors are the addresses from which builds get packages. An empty field
// means that the host's own apt sources are used.
type Mirrors struct {
	// Debian and Ubuntu are the archive roots, e.g. http://mirror/debian.
	Debian, Ubuntu string
	// Proxy is an http proxy for apt.
	Proxy string
}

// Options are the settings of a Cache. Dir is required; Runner is required if
// Sources contains "build".
type Options struct {
	// Dir is the cache's own directory, created with mode 0700.
	Dir string
	// Sources names the sources "local", "build" and "simplestreams:NAME", in
	// the order in which they are asked. Empty means local, then build.
	Sources []string
	// Servers maps the NAME of a simplestreams source to its https URL.
	Servers map[string]string
	// Refresh is the age at which the cache asks the source again for an image
	// that was built or downloaded by name; zero means never.
	Refresh time.Duration
	Runner  run.Runner
	// Packages may be nil if the required packages are already installed.
	Packages Packages
	// HTTP provides the transport; nil means Go's default.
	HTTP *http.Client
	// Arch is the host's architecture in Debian's terms, e.g. amd64; empty
	// means the architecture of this process.
	Arch    string
	Mirrors Mirrors
	// AptDir is the directory with the host's apt sources; empty means
	// /etc/apt.
	AptDir string
	// Busybox is the path of a statically linked busybox; empty means the
	// host's.
	Busybox string
	Log     *slog.Logger
	Clock   func() time.Time
	// Scan checks files before they are kept; nil means scanFile() in this
	// process.
	Scan Scanner
	// Downloads tunes downloads; the zero value means the defaults.
	Downloads Downloads
}

// refreshPause is the time after a failed refresh of an image for which the cached
// image is used at once. A build that fails may take minutes, e.g. if the mirror
// does not answer.
const refreshPause = 15 * time.Minute

// Cache is a Provider that keeps built and fetched images in a directory, in
// files named by their sha256. Several processes may share a directory.
type Cache struct {
	o       Options
	log     *slog.Logger
	sources []source
	flights flight.Group[step, Artifact]
	proofs  proofs
	// failed holds the times of failed refreshes by key().
	failed sync.Map
	// downloads counts the running downloads.
	downloads atomic.Int64
}

var _ Provider = (*Cache)(nil)

// Open returns the cache in o.Dir. It creates the directory if it is missing,
// and removes unfinished work of processes that have ended. It returns
// fault.Invalid if o.Sources names an unknown source.
func Open(o Options) (*Cache, error) {
	if len(o.Sources) == 0 {
		o.Sources = []string{sourceLocal, sourceBuild}
	}
	o.Arch = cmp.Or(o.Arch, debianArch(runtime.GOARCH))
	o.AptDir = cmp.Or(o.AptDir, "/etc/apt")
	o.Busybox = cmp.Or(o.Busybox, paths.Busybox)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Scan == nil {
		o.Scan = func(ctx context.Context, f *os.File, size int64, expect Expect) error {
			return scanFile(ctx, f, size, expect)
		}
	}
	o.Downloads = o.Downloads.withDefaults()
	c := &Cache{o: o, log: o.Log, flights: flight.Group[step, Artifact]{Log: o.Log}}
	if err := c.openSources(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot open image cache: %w", err)
	}
	// processesIn() needs the path without links, to find processes that work
	// in the directory.
	dir, err := filepath.EvalSymlinks(o.Dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open image cache: %w", err)
	}
	c.o.Dir = dir
	for _, dir := range []string{"", blobsDir, indexDir, locksDir, tmpDir, partsDir, debsDir, quarantineDir} {
		path := filepath.Join(c.o.Dir, dir)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("cannot open image cache: %w", err)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			return nil, fmt.Errorf("cannot open image cache: %w", err)
		}
	}
	if err := c.removeLeftovers(); err != nil {
		return nil, fmt.Errorf("cannot open image cache: %w", err)
	}
	c.trim(keptParts)
	c.trim(keptDebs)
	if err := c.sweep(replacedAge); err != nil {
		return nil, fmt.Errorf("cannot open image cache: %w", err)
	}
	return c, nil
}

// Ensure implements Provider.
func (c *Cache) Ensure(ctx context.Context, ref string, format Format, progress Progress) (Artifact, error) {
	return c.ensure(ctx, ref, format, nil, progress)
}

// EnsureOrOwn implements Provider.
func (c *Cache) EnsureOrOwn(ctx context.Context, ref string, format Format, own Own, progress Progress) (Artifact, error) {
	return c.ensure(ctx, ref, format, own, progress)
}

func (c *Cache) ensure(ctx context.Context, ref string, format Format, own Own, progress Progress) (Artifact, error) {
	r, err := ParseRef(ref)
	if err != nil {
		return Artifact{}, err
	}
	if r.Kind.own() {
		return Artifact{}, fault.New(fault.Invalid, "cannot fetch image %s: it is an alias inside the hypervisor, which only its driver resolves", r.shown())
	}
	if !format.known() {
		return Artifact{}, fault.New(fault.Invalid, "cannot fetch image %s: unknown format %q", r.shown(), format)
	}
	name := key(r, format)
	shared := name
	if own != nil {
		shared = "own:" + shared // own may return the hypervisor's image, which callers without own cannot use
	}
	return c.share(ctx, shared, progress, func(ctx context.Context, report Progress) (Artifact, error) {
		unlock, err := c.lock(ctx, name, report)
		if err != nil {
			return Artifact{}, err
		}
		defer unlock()
		// Look only under the lock, because another process may just have made
		// the image.
		a, stale, err := c.lookup(ctx, r, format)
		switch {
		case err == nil && (!stale || c.pauses(name)):
			return a, nil
		case err != nil && !fault.Is(err, fault.NotFound):
			return Artifact{}, err
		}
		if err == nil {
			own = nil // a cached image, even a stale one, takes precedence over the hypervisor's
		}
		fresh, askErr := c.ask(ctx, r, format, own, report)
		if askErr != nil && err == nil && ctx.Err() == nil {
			c.failed.Store(name, c.o.Clock())
			c.log.Warn("image cannot be refreshed; the cached image is used", "image", r.shown(), "reason", askErr.Error())
			return a, nil
		}
		return fresh, askErr
	})
}

// pauses reports whether the last refresh of the image failed a short time ago.
func (c *Cache) pauses(name string) bool {
	at, failed := c.failed.Load(name)
	return failed && c.o.Clock().Sub(at.(time.Time)) < refreshPause
}

// step is a report of Progress.
type step struct {
	message string
	percent int
}

// share runs work once for all concurrent callers with the same key. Each gets
// the result and the progress.
func (c *Cache) share(ctx context.Context, key string, progress Progress, work func(context.Context, Progress) (Artifact, error)) (Artifact, error) {
	var listen func(step)
	if progress != nil {
		listen = func(s step) { progress(s.message, s.percent) }
	}
	return c.flights.Do(ctx, key, listen, func(ctx context.Context, report func(step)) (Artifact, error) {
		return work(ctx, func(message string, percent int) { report(step{message, percent}) })
	})
}

// Build builds the named image in one format, even if it is in the cache, and
// replaces the cached image. It returns the same errors as Ensure.
func (c *Cache) Build(ctx context.Context, ref string, format Format, progress Progress) (Artifact, error) {
	r, err := ParseRef(ref)
	if err != nil {
		return Artifact{}, err
	}
	if r.Kind != kindName {
		return Artifact{}, fault.New(fault.Invalid, "cannot build image %s: only os/release[/variant] can be built", r.shown())
	}
	if !format.known() {
		return Artifact{}, fault.New(fault.Invalid, "cannot build image %s: unknown format %q", r.shown(), format)
	}
	// The key differs from the key in ensure(), because an explicit build must
	// not be answered from the cache.
	return c.share(ctx, "build:"+key(r, format), progress, func(ctx context.Context, report Progress) (Artifact, error) {
		unlock, err := c.lock(ctx, key(r, format), report)
		if err != nil {
			return Artifact{}, err
		}
		defer unlock()
		a, err := c.obtain(ctx, buildSource{c}, r, format, report)
		if fault.Is(err, fault.NotFound) {
			return Artifact{}, fault.New(fault.NotFound, "cannot build image %s: this host %w", r.shown(), err)
		}
		return a, err
	})
}

// List returns the images in the cache, ordered by reference. It does not check
// their digests.
func (c *Cache) List(context.Context) ([]Artifact, error) {
	entries, err := c.entries()
	if err != nil {
		return nil, err
	}
	out := make([]Artifact, 0, len(entries))
	for _, e := range entries {
		out = append(out, c.artifact(e))
	}
	return out, nil
}

// Delete removes the images with this digest or reference from the cache, and
// the files that no other image needs. It is success if there is no such image.
func (c *Cache) Delete(ctx context.Context, digestOrRef string) error {
	entries, err := c.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Digest != digestOrRef && e.Reference != digestOrRef {
			continue
		}
		if err := c.deleteEntry(ctx, e); err != nil {
			return fmt.Errorf("cannot delete image %s: %w", oneline.Address(e.Reference), err)
		}
		c.log.Info("image deleted", "image", oneline.Address(e.Reference), "digest", e.Digest)
	}
	return c.sweep(0)
}

// debianArch returns Debian's name of a Go architecture, e.g. armhf for arm.
func debianArch(goarch string) string {
	names := map[string]string{"386": "i386", "arm": "armhf", "ppc64le": "ppc64el"}
	if name, ok := names[goarch]; ok {
		return name
	}
	return goarch
}

// mayUseLocal reports whether a cached image from the given source may be used
// without asking that source again.
func (c *Cache) mayUseLocal(r Ref, from string) bool {
	return r.Kind == kindFile || r.Kind == kindHTTPS ||
		slices.Contains(c.o.Sources, sourceLocal) || slices.Contains(c.o.Sources, from)
}
