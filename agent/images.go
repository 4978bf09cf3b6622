package agent

import (
	"context"
	"fmt"

	imageservice "hostler/agent/services/images"
	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/units"
	"hostler/packaging"
)

// openImages opens the image cache.
func (h *host) openImages() error {
	cache, err := images.Open(h.imageOptions(h.cfg))
	if err != nil {
		return fmt.Errorf("cannot open the image cache: %w", err)
	}
	h.images = cache
	if h.program != "" && !images.Confines() {
		h.notice("images", "the kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in lsm=): images are read by a separate user, who may read all world-readable files")
	}
	return nil
}

// imageOptions returns the options of the image cache from the configuration.
func (h *host) imageOptions(c spec.Config) images.Options {
	var scan images.Scanner
	if h.program != "" {
		scan = images.Isolated(h.runner(units.Scan), h.program, "internal", "scan")
	}
	return images.Options{
		Dir: h.paths.Images(), Sources: c.Images.Sources, Servers: c.Images.Servers, Refresh: c.Images.RefreshEvery(),
		Runner: h.runner(units.Image), Packages: imagePackages{h},
		Mirrors: images.Mirrors{Debian: c.Apt.Mirror, Ubuntu: c.Apt.UbuntuMirror, Proxy: c.Apt.Proxy},
		Log:     h.logger.With("part", "images"), Clock: h.now, Scan: scan,
	}
}

// imagePackages installs the packages that an image builder needs, under the
// host lock.
type imagePackages struct{ h *host }

// Ensure implements images.Packages.
func (p imagePackages) Ensure(ctx context.Context, names []string, progress func(string)) error {
	manager := p.h.packages(p.h.config())
	missing, err := manager.Missing(names)
	if err != nil {
		return err
	}
	if len(missing) == 0 && !manager.Unfinished() {
		return nil
	}
	if err := p.check(ctx, manager, missing); err != nil {
		return err
	}
	release, err := p.h.lock(ctx, "packages for building images", func(holder string) {
		progress("waiting for the host lock, held by " + holder)
	})
	if err != nil {
		return fmt.Errorf("cannot take the host lock: %w", err)
	}
	defer release()
	return manager.Install(ctx, names, progress)
}

// Unavailable implements images.Packages.
func (p imagePackages) Unavailable(ctx context.Context, names []string) error {
	manager := p.h.packages(p.h.config())
	missing, err := manager.Missing(names)
	if err != nil {
		return err
	}
	return p.check(ctx, manager, missing)
}

// check returns an error if no repository offers some of the missing packages.
func (p imagePackages) check(ctx context.Context, manager packaging.Manager, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	release, err := packaging.ReadRelease(p.h.paths.OSRelease())
	if err != nil {
		return err
	}
	return packaging.CheckOffered(ctx, manager, missing, release.Offer())
}

// imageService gives the API access to the images.
func (h *host) imageService() imageservice.Service {
	return imageservice.Service{Cache: h.images, Types: h.types(), Store: h.store, Of: func(t spec.ContainerType) (containerbroker.ImageStore, error) {
		d, err := h.driver(t)
		return d.Images, err
	}}
}
