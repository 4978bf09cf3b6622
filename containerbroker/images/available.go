package images

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"hostler/internal/fault"
	"hostler/internal/near"
)

// CheckAvailable returns why an image is not available, or nil if no reason is
// known. It uses no network and fetches nothing. own are the names of the
// images in the hypervisor's own store, if it has a store.
func (c *Cache) CheckAvailable(ctx context.Context, ref string, format Format, own []string) error {
	r, err := ParseRef(ref)
	if err != nil {
		return err
	}
	if e, err := c.readEntry(c.indexPath(key(r, format))); err == nil && c.mayUseLocal(r, e.Source) {
		return nil
	}
	switch r.Kind {
	case kindSimplestreams:
		_, err := c.streams(r.Server)
		return err
	case kindFile:
		if _, err := os.Stat(r.Location); os.IsNotExist(err) {
			return fault.New(fault.NotFound, "there is no file %s", r.Location)
		}
	case kindLXD, kindIncus:
		if !slices.Contains(own, r.Location) {
			name, command := r.Kind.daemon()
			return fault.New(fault.NotFound, "%s has no image %q%s; `%s image list` shows those it has", name, r.Location, meant(r.Location, own), command)
		}
	case kindName:
		if slices.Contains(own, r.Name) || slices.ContainsFunc(c.o.Sources, func(s string) bool { return strings.HasPrefix(s, sourceStreams) }) {
			return nil
		}
		i := slices.IndexFunc(recipes, func(b recipe) bool { return b.name == r.Name })
		if i < 0 || !c.builds() || !c.makes(recipes[i], format) {
			return c.absent(r, format, own)
		}
		if err := c.unavailable(ctx, recipes[i].needs(format)); err != nil {
			return fault.New(fault.KindOf(err), "cannot build %s: %w", r.Name, err)
		}
	}
	return nil
}

// unavailable returns why the packages for a build cannot be installed, or nil
// if no obstacle is known.
func (c *Cache) unavailable(ctx context.Context, names []string) error {
	if c.o.Packages == nil {
		return nil
	}
	return c.o.Packages.Unavailable(ctx, names)
}

func (c *Cache) builds() bool { return slices.Contains(c.o.Sources, sourceBuild) }

// absent returns the error for an image name that is neither in the cache nor
// in the hypervisor's store, and that no source can build.
func (c *Cache) absent(r Ref, format Format, own []string) error {
	where, can := "cache", "and images.sources names no other source"
	if format == FormatLXD {
		where += ", aliases of the hypervisor"
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
			if c.makes(b, format) {
				names = append(names, b.name)
			}
		}
		known, can = append(known, names...), "and hostler can build only "+strings.Join(names, ", ")
		if len(names) == 0 {
			can = "and hostler " + onlyAmd64
		}
	}
	return fault.New(fault.NotFound, "no image %q on this host (%s), %s%s", r.String(), where, can, meant(r.Name, known))
}

// meant returns the suggestion at the end of a message about an unknown image,
// e.g. "; did you mean debian/12?", or "" if no name is similar.
func meant(name string, known []string) string {
	if word := near.Word(name, known); word != "" {
		return fmt.Sprintf("; did you mean %s?", word)
	}
	return ""
}

// Buildable is an image that can be built on this host.
type Buildable struct {
	Name string
	// Formats are the formats in which it can be built.
	Formats []Format
	// From is the address from which its packages come, without user and
	// password. Err says why no such address can be determined, or why the
	// host cannot get the packages for a build in one of the formats.
	From string
	Err  error
}

// Buildable returns all images that can be built. It does not use the network.
// It returns none if images.sources does not name "build".
func (c *Cache) Buildable(ctx context.Context) (all []Buildable) {
	if !c.builds() {
		return nil
	}
	why := map[string]error{} // by packages, which many recipes share
	for _, r := range recipes {
		b := Buildable{Name: r.name, From: "the host's packages"}
		if r.archive != nil {
			b.From, b.Err = r.archive.mirror(c.o.AptDir, c.o.Mirrors)
		}
		for _, f := range []Format{FormatLXD, FormatDisk} {
			if !c.makes(r, f) {
				continue
			}
			b.Formats = append(b.Formats, f)
			packages := strings.Join(r.needs(f), " ")
			if _, known := why[packages]; !known {
				why[packages] = c.unavailable(ctx, r.needs(f))
			}
			if b.Err == nil {
				b.Err = why[packages]
			}
		}
		all = append(all, b)
	}
	return all
}

// mirror returns the address of the distribution's mirror, without user and
// password.
func (d distribution) mirror(aptDir string, m Mirrors) (string, error) {
	found, err := d.archives(aptDir, m)
	if err != nil {
		return "", err
	}
	address, err := url.Parse(found.main)
	if err != nil {
		return "", fault.New(fault.NeedsOperator, "%s is not an address", d.setting)
	}
	address.User = nil
	return address.String(), nil
}
