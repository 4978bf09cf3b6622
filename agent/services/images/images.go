package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/fault"
	"hostler/internal/oneline"
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
		Mirrors: images.Mirrors{Debian: c.Apt.Mirror, Proxy: c.Apt.Proxy},
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
	release, err := p.h.lock(ctx, "packages for building images", func(holder string) {
		progress("waiting for the host lock, held by " + holder)
	})
	if err != nil {
		return fmt.Errorf("cannot take the host lock: %w", err)
	}
	defer release()
	return manager.Install(ctx, names, packaging.Options{NoRecommends: true}, progress)
}

// imageService gives the API access to the cache and to the hypervisors'
// images.
type imageService struct{ *host }

// List implements api.Images.
func (s imageService) List(ctx context.Context) ([]client.Image, []string, error) {
	rows, blind, err := s.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	var notices []string
	for _, t := range slices.Sorted(maps.Keys(blind)) {
		notices = append(notices, oneline.Clean(fmt.Sprintf("the images that %s keeps are not listed: %v", t, blind[t]), 1024))
	}
	return rows, notices, nil
}

// look reads the images of the cache and of the hypervisors. blind holds the
// errors of hypervisors that did not answer; the images of the others are still
// returned.
func (s imageService) look(ctx context.Context) (rows []client.Image, blind map[spec.ContainerType]error, err error) {
	artifacts, err := s.images.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows, blind = []client.Image{}, map[spec.ContainerType]error{}
	for _, a := range artifacts {
		rows = append(rows, imageView(a))
	}
	for _, t := range s.types() {
		d, err := s.driver(t)
		if err != nil {
			continue // the hypervisor does not exist, so it has no images
		}
		own, err := listImagesSoon(ctx, d.Images)
		if err != nil {
			blind[t] = err
			continue
		}
		for _, i := range own {
			row := client.Image{Reference: i.Reference, Digest: i.ID, Format: string(t), Size: i.Size, Created: i.Created, UsedBy: i.UsedBy, Where: string(t)}
			if row.Reference == "" && len(i.Aliases) > 0 {
				row.Reference = string(t) + ":" + i.Aliases[0]
			}
			if row.UsedBy == nil {
				row.UsedBy = []string{}
			}
			rows = append(rows, row)
		}
	}
	return rows, blind, nil
}

func listImagesSoon(ctx context.Context, store containerbroker.ImageStore) ([]containerbroker.HypervisorImage, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return store.ListImages(ctx)
}

func imageView(a images.Artifact) client.Image {
	return client.Image{
		Reference: a.Reference, Digest: a.Digest, Format: string(a.Format), Size: a.Size,
		Created: a.Created, UsedBy: []string{}, Where: "cache",
	}
}

// Delete implements api.Images. It deletes the image from the hypervisors first
// and then from the cache. A hypervisor that does not answer prevents this only
// if a machine of its type names the image, or if no other place knows the
// image.
func (s imageService) Delete(ctx context.Context, reference string) error {
	rows, blind, err := s.look(ctx)
	if err != nil {
		return err
	}
	unknown := notFoundUnless(rows, reference) != nil
	for _, t := range slices.Sorted(maps.Keys(blind)) {
		used, err := s.named(ctx, t, reference)
		if err != nil {
			return err
		}
		if used || unknown {
			return fmt.Errorf("cannot find the users of image %q: %w", reference, blind[t])
		}
	}
	for _, row := range rows {
		if row.Reference != reference && row.Digest != reference || row.Where == "cache" {
			continue
		}
		for _, t := range s.types() {
			if string(t) != row.Where {
				continue
			}
			d, err := s.driver(t)
			if err != nil {
				return err
			}
			if err := d.Images.DeleteImage(ctx, row.Digest); err != nil {
				return fault.New(fault.KindOf(err), "%s", strings.ReplaceAll(err.Error(), row.Digest, reference))
			}
		}
	}
	for _, row := range rows {
		if (row.Reference == reference || row.Digest == reference) && row.Where == "cache" {
			return s.images.Delete(ctx, reference)
		}
	}
	return notFoundUnless(rows, reference)
}

// named says whether a machine of the type has the image or declares it.
func (s imageService) named(ctx context.Context, t spec.ContainerType, reference string) (bool, error) {
	machines, _, err := s.store.List(ctx, spec.KindMachine)
	if err != nil {
		return false, fmt.Errorf("cannot read the machines: %w", err)
	}
	all, err := provisioner.Decode(machines, t, provisioner.Config{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(d provisioner.Desired) bool {
		made := d.Status.Instance
		return d.Record.Machine.Image == reference || made != nil && (made.Image == reference || made.ImageID == reference)
	}), nil
}

// Import implements api.ImageBuilder.
func (s imageService) Import(ctx context.Context, path, reference, digest string, progress func(client.Progress)) (client.Image, error) {
	a, err := s.images.Import(ctx, path, reference, digest, forAPI(progress))
	return imageView(a), err
}

// Build implements api.ImageBuilder.
func (s imageService) Build(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (client.Image, error) {
	a, err := s.images.Build(ctx, reference, imageForm(t), forAPI(progress))
	return imageView(a), err
}

// imageForm returns the format of the type's images.
func imageForm(t spec.ContainerType) images.Format {
	info, _ := t.Info()
	return images.Format(info.ImageForm)
}

// Ensure implements api.ImageBuilder.
func (s imageService) Ensure(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (string, error) {
	d, err := s.driver(t)
	if err != nil {
		return "", err
	}
	return d.Images.EnsureImage(ctx, reference, func(step containerbroker.Step) {
		progress(client.Progress{Message: step.Message, Percent: step.Percent})
	})
}

func forAPI(progress func(client.Progress)) images.Progress {
	return func(message string, percent int) { progress(client.Progress{Message: message, Percent: percent}) }
}

// notFoundUnless returns nil if a row bears the reference.
func notFoundUnless(rows []client.Image, reference string) error {
	for _, row := range rows {
		if row.Reference == reference || row.Digest == reference {
			return nil
		}
	}
	return fault.New(fault.NotFound, "there is no image %q", reference)
}
