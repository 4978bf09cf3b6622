package images

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// buildSource builds images on this host.
type buildSource struct{ c *Cache }

func (buildSource) name() string { return sourceBuild }

// recipe builds an image.
type recipe struct {
	name     string
	packages []string // of the host, needed for building
	space    int64    // work space in bytes
	// disks: the recipe also makes disks for KVM guests.
	disks bool
	make  func(ctx context.Context, c *Cache, j job) (product, error)
}

// recipes are all images that can be built.
var recipes = []recipe{
	debianRecipe("11", "bullseye"),
	debianRecipe("12", "bookworm"),
	debianRecipe("13", "trixie"),
	{name: "busybox/1", packages: []string{"busybox-static", "squashfs-tools"}, space: 32 << 20, make: makeBusybox},
}

func (s buildSource) fetch(ctx context.Context, j job) (product, error) {
	var names []string
	for _, r := range recipes {
		names = append(names, r.name)
	}
	i := slices.Index(names, j.ref.Name)
	if i < 0 || j.ref.Kind != KindName {
		return product{}, fault.New(fault.NotFound, "can build only %s", strings.Join(names, ", "))
	}
	r := recipes[i]
	if j.format != FormatLXD && !r.disks {
		return product{}, fault.New(fault.NotFound, "makes no disk of %s for KVM guests", r.name)
	}
	if j.format == FormatDisk {
		if s.c.o.Arch != "amd64" {
			return product{}, fault.New(fault.NotFound, "makes disks for KVM guests on amd64 only")
		}
		r.packages, r.space = slices.Concat(r.packages, diskPackages), r.space+2*diskSize
	}
	if s.c.o.Runner == nil {
		return product{}, fault.New(fault.NotFound, "cannot run programs here")
	}
	if err := s.c.needSpace(r.space); err != nil {
		return product{}, err
	}
	if s.c.o.Packages != nil {
		report := func(message string) { j.report(message, 0) }
		if err := s.c.o.Packages.Ensure(ctx, r.packages, report); err != nil {
			return product{}, fmt.Errorf("cannot install the packages for a build: %w", err)
		}
	}
	j.report("building "+r.name, 0)
	p, err := r.make(ctx, s.c, j)
	if err != nil {
		return product{}, fmt.Errorf("cannot build %s: %w", r.name, err)
	}
	return p, nil
}
