package images

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// streamSource is a configured simplestreams server of LXD images. The layout
// is that of LXD's documented image servers. The file streams/v1/index.json
// names product files. These list versions, and the items of a version name the
// image's files.
type streamSource struct {
	c      *Cache
	server string
	base   *url.URL
}

func (s streamSource) name() string { return sourceStreams + s.server }

type streamIndex struct {
	Format string `json:"format"`
	Index  map[string]struct {
		Path     string   `json:"path"`
		Format   string   `json:"format"`
		DataType string   `json:"datatype"`
		Products []string `json:"products"`
	} `json:"index"`
}

type streamProducts struct {
	Format   string                   `json:"format"`
	Products map[string]streamProduct `json:"products"`
}

type streamProduct struct {
	Aliases  string                   `json:"aliases"`
	Arch     string                   `json:"arch"`
	Versions map[string]streamVersion `json:"versions"`
}

type streamVersion struct {
	Items map[string]streamItem `json:"items"`
}

type streamItem struct {
	FileType         string `json:"ftype"`
	Path             string `json:"path"`
	Size             int64  `json:"size"`
	SHA256           string `json:"sha256"`
	CombinedSquashfs string `json:"combined_squashfs_sha256"`
}

// chosen is the version of a product that was chosen for this host.
type chosen struct {
	version      string
	meta, rootfs streamItem
	digest       string
}

// maxStreamFile bounds the size of index and product files, in bytes.
const maxStreamFile = 32 << 20

func (s streamSource) fetch(ctx context.Context, j job) (product, error) {
	if j.format != FormatLXD {
		return product{}, fault.New(fault.NotFound, "has only LXD images")
	}
	var index streamIndex
	if err := s.read(ctx, "streams/v1/index.json", j, &index); err != nil {
		return product{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(index.Index)) {
		entry := index.Index[name]
		if entry.DataType != "image-downloads" {
			continue
		}
		var products streamProducts
		if err := s.read(ctx, entry.Path, j, &products); err != nil {
			return product{}, err
		}
		if pick, ok := choose(products, j.ref.Name, s.c.o.Arch); ok {
			return s.take(ctx, j, pick)
		}
	}
	return product{}, fault.New(fault.NotFound, "has no image %s for %s that hostler can use", j.ref.Name, s.c.o.Arch)
}

// choose finds the newest version of the product with this alias and
// architecture. It considers only versions that have a metadata file and a
// squashfs with digests. It returns false if there is none.
func choose(all streamProducts, alias, arch string) (chosen, bool) {
	var best chosen
	for _, p := range all.Products {
		if p.Arch != arch && p.Arch != lxdArchs[arch] || !slices.Contains(strings.Split(p.Aliases, ","), alias) {
			continue
		}
		for version, v := range p.Versions {
			if version <= best.version {
				continue
			}
			pick := chosen{version: version}
			for _, item := range v.Items {
				switch item.FileType {
				case "lxd.tar.xz", "incus.tar.xz": // LXD and Incus use the same metadata file, so servers list it under either name
					if pick.meta.FileType != "lxd.tar.xz" {
						pick.meta, pick.digest = item, item.CombinedSquashfs
					}
				case "squashfs":
					pick.rootfs = item
				}
			}
			if digestPattern.MatchString(pick.digest) && digestPattern.MatchString(pick.meta.SHA256) && digestPattern.MatchString(pick.rootfs.SHA256) {
				best = pick
			}
		}
	}
	return best, best.version != ""
}

func (s streamSource) take(ctx context.Context, j job, pick chosen) (product, error) {
	p := product{digest: pick.digest}
	for i, item := range []streamItem{pick.meta, pick.rootfs} {
		address, err := s.resolve(item.Path)
		if err != nil {
			return product{}, err
		}
		if item.Size <= 0 || item.Size > maxImageSize {
			return product{}, fault.New(fault.Invalid, "cannot download %s: the server claims %d bytes", item.Path, item.Size)
		}
		target := filepath.Join(j.work, fmt.Sprintf("part%d", i))
		if err := s.c.download(ctx, address, target, part{size: item.Size, keep: true}, j.report); err != nil {
			return product{}, err
		}
		sum, err := sumFile(ctx, target)
		if err != nil {
			return product{}, err
		}
		if sum != item.SHA256 {
			return product{}, fault.New(fault.Transient, "cannot use %s: its sha256 differs from the server's index (%s)", item.Path, item.SHA256)
		}
		p.paths = append(p.paths, target)
	}
	return p, nil
}

// resolve returns the address of a file on the server. It refuses paths that
// leave the server's base address.
func (s streamSource) resolve(name string) (string, error) {
	if name == "" || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsAny(name, "?#:\\") {
		return "", fault.New(fault.Invalid, "the server names the impossible path %q", clip(name))
	}
	return s.base.JoinPath(name).String(), nil
}

// read downloads a JSON file and decodes it.
func (s streamSource) read(ctx context.Context, name string, j job, into any) error {
	address, err := s.resolve(name)
	if err != nil {
		return err
	}
	target := filepath.Join(j.work, "index")
	if err := s.c.download(ctx, address, target, part{most: maxStreamFile}, func(string, int) { j.report("asking "+s.name(), -1) }); err != nil {
		return err
	}
	defer func() { _ = os.Remove(target) }()
	data, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot read %s: %v", name, err)
	}
	return nil
}
