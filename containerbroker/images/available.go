package images

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"hostler/internal/fault"
	"hostler/internal/near"
)

// CheckAvailable returns why an image is not available, as far as that is known
// without the network and without fetching; nil means that no obstacle is
// known. own are the names of the hypervisor's own images, nil for a hypervisor
// without any.
func (c *Cache) CheckAvailable(ref string, format Format, own []string) error {
	r, err := ParseRef(ref)
	if err != nil {
		return err
	}
	if e, err := c.readEntry(c.indexPath(key(r, format))); err == nil && c.mayUseLocal(r, e.Source) {
		return nil
	}
	switch r.Kind {
	case KindSimplestreams:
		_, err := c.streams(r.Server)
		return err
	case KindFile:
		if _, err := os.Stat(r.Location); os.IsNotExist(err) {
			return fault.New(fault.NotFound, "there is no file %s", r.Location)
		}
	case KindLXD:
		if !slices.Contains(own, r.Location) {
			return fault.New(fault.NotFound, "LXD has no image %q%s; `lxc image list` shows those it has", r.Location, meant(r.Location, own))
		}
	case KindName:
		if slices.Contains(own, r.Name) || slices.ContainsFunc(c.o.Sources, func(s string) bool { return strings.HasPrefix(s, sourceStreams) }) {
			return nil
		}
		i := slices.IndexFunc(recipes, func(b recipe) bool { return b.name == r.Name })
		if i < 0 || !c.builds() || format == FormatDisk && !recipes[i].disks {
			return c.absent(r, format, own)
		}
	}
	return nil
}

func (c *Cache) builds() bool { return slices.Contains(c.o.Sources, sourceBuild) }

// absent is the error for an image name that neither the cache nor the
// hypervisor has and that no source can build.
func (c *Cache) absent(r Ref, format Format, own []string) error {
	where, can := "cache", "and images.sources names no other source"
	if format == FormatLXD {
		where += ", LXD aliases"
	}
	known := slices.Clone(own)
	if entries, err := c.entries(); err == nil {
		for _, e := range entries {
			if e.Format == format {
				known = append(known, e.Reference)
			}
		}
	}
	if c.builds() {
		var names []string
		for _, b := range recipes {
			if format != FormatDisk || b.disks {
				names = append(names, b.name)
			}
		}
		known, can = append(known, names...), "and hostler can build only "+strings.Join(names, ", ")
	}
	return fault.New(fault.NotFound, "no image %q on this host (%s), %s%s", r.String(), where, can, meant(r.Name, known))
}

// meant is the suggestion at the end of a message about an unknown image, e.g.
// "; did you mean debian/12?".
func meant(name string, known []string) string {
	if word := near.Word(name, known); word != "" {
		return fmt.Sprintf("; did you mean %s?", word)
	}
	return ""
}
