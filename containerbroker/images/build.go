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

// recipe says how to build an image.
type recipe struct {
	name     string
	packages []string // the packages that the host needs for every format
	space    int64    // work space in bytes
	// disks is true if the recipe also makes disks for KVM guests.
	disks bool
	// archive is the distribution from which the image's packages come. If it
	// is nil, the image is made from files of the host.
	archive *distribution
	make    func(ctx context.Context, c *Cache, j job) (product, error)
}

// recipes are all images that can be built.
var recipes = []recipe{
	debianRecipe(debianArchive, "11", "bullseye"),
	debianRecipe(debianArchive, "12", "bookworm"),
	debianRecipe(debianArchive, "13", "trixie"),
	debianRecipe(debianArchive, "testing", "testing"),
	debianRecipe(ubuntuArchive, "24.04", "noble"),
	debianRecipe(ubuntuArchive, "26.04", "resolute"),
	{name: "busybox/1", packages: []string{"busybox-static", "squashfs-tools"}, space: 32 << 20, make: makeBusybox},
}

// makes reports whether the recipe can make the format on this host.
func (c *Cache) makes(r recipe, f Format) bool {
	return f == FormatLXD || r.disks && c.o.Arch == "amd64"
}

// onlyAmd64 says why a recipe with disks does not make them on this host.
const onlyAmd64 = "makes disks for KVM guests on amd64 only"

// needs returns the packages that the host needs to build in the format.
func (r recipe) needs(f Format) []string {
	if f == FormatDisk {
		return slices.Concat(r.packages, diskPackages)
	}
	return r.packages
}

func (s buildSource) fetch(ctx context.Context, j job) (product, error) {
	var names []string
	for _, r := range recipes {
		names = append(names, r.name)
	}
	i := slices.Index(names, j.ref.Name)
	if i < 0 || j.ref.Kind != kindName {
		return product{}, fault.New(fault.NotFound, "can build only %s", strings.Join(names, ", "))
	}
	r := recipes[i]
	if !s.c.makes(r, j.format) {
		if r.disks {
			return product{}, fault.New(fault.NotFound, onlyAmd64)
		}
		return product{}, fault.New(fault.NotFound, "makes no disk of %s for KVM guests", r.name)
	}
	if j.format == FormatDisk {
		r.space += 2 * diskSize
	}
	if s.c.o.Runner == nil {
		return product{}, fault.New(fault.NotFound, "cannot run programs here")
	}
	if err := s.c.needSpace(r.space); err != nil {
		return product{}, err
	}
	if s.c.o.Packages != nil {
		report := func(message string) { j.report(message, 0) }
		if err := s.c.o.Packages.Ensure(ctx, r.needs(j.format), report); err != nil {
			return product{}, fmt.Errorf("cannot install the packages for a build: %w", err)
		}
	}
	j.report("building "+r.name, 0)
	p, err := r.make(ctx, s.c, j)
	return p, fault.Explain(err, "cannot build %s", r.name)
}
