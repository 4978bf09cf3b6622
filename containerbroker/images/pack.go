package images

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// imageInfo is an image's metadata.
type imageInfo struct {
	arch, os, release, description string
	epoch                          time.Time
	// seed is true if LXD writes cloud-init's settings into the guest's files.
	seed bool
}

// pack turns a root directory into a metadata tar and a squashfs, which LXD
// imports together. Unlike a tar, a squashfs is unpacked on all processors.
func (c *Cache) pack(ctx context.Context, j job, root string, info imageInfo) (product, error) {
	meta, rootfs := filepath.Join(j.work, "metadata.tar"), filepath.Join(j.work, "rootfs.squashfs")
	if err := writeMetadata(meta, info); err != nil {
		return product{}, fmt.Errorf("cannot write image metadata: %w", err)
	}
	_, err := c.runner(j).Run(ctx, run.Command{
		Path: paths.Mksquashfs, Dir: j.work, Timeout: buildTimeout,
		Args: []string{
			root, rootfs, "-comp", "zstd", "-Xcompression-level", squashLevel, "-noappend", "-no-progress", "-quiet",
			// squashfs cannot store POSIX ACLs. systemd creates its ACLs again.
			"-xattrs",
		},
		Env: []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(info.epoch.Unix(), 10)},
	})
	if err != nil {
		return product{}, err
	}
	return product{paths: []string{meta, rootfs}}, nil
}

// squashLevel is the zstd level. It packs as fast as the lowest level and
// unpacks as fast; see docs/decisions/0003-images.md.
const squashLevel = "3"

// seedDir is where cloud-init's NoCloud datasource looks for its files.
const seedDir = "/var/lib/cloud/seed/nocloud-net/"

// templatesOf returns an image's templates by the files that LXD writes from
// them, and the embedded template files.
func templatesOf(info imageInfo) (targets map[string]template, files []string) {
	// Without these two templates, the guest would have the name of the host
	// that built the image.
	made := []string{"create", "copy"}
	targets = map[string]template{
		"/etc/hostname": {When: made, Template: "hostname.tpl"},
		"/etc/hosts":    {When: made, Template: "hosts.tpl"},
	}
	files = []string{"debian/files/hostname.tpl", "debian/files/hosts.tpl"}
	if info.seed {
		for _, name := range []string{"meta-data", "network-config", "user-data", "vendor-data"} {
			// LXD fills the seed at every start, so that changed settings take
			// effect.
			targets[seedDir+name] = template{When: []string{"create", "copy", "start"}, Template: name + ".tpl"}
			files = append(files, "debian/seed/"+name+".tpl")
		}
	}
	return targets, files
}

func writeMetadata(path string, info imageInfo) error {
	arch := lxdArchs[info.arch]
	if arch == "" {
		return fault.New(fault.Invalid, "the architecture %s is not known", info.arch)
	}
	targets, files := templatesOf(info)
	text, err := yaml.Marshal(metadata{
		Architecture: arch,
		Created:      info.epoch.Unix(),
		Properties: map[string]string{
			"architecture": info.arch, "description": info.description, "os": info.os, "release": info.release,
		},
		Templates: targets,
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	t := tar.NewWriter(f)
	add := func(h tar.Header, data []byte) error {
		h.ModTime, h.Format, h.Size = info.epoch, tar.FormatUSTAR, int64(len(data))
		err := t.WriteHeader(&h)
		if err == nil {
			_, err = t.Write(data)
		}
		return err
	}
	if err := add(tar.Header{Name: "metadata.yaml", Mode: 0o644}, text); err != nil {
		return err
	}
	if err := add(tar.Header{Name: "templates/", Typeflag: tar.TypeDir, Mode: 0o755}, nil); err != nil {
		return err
	}
	for _, file := range files {
		data, err := embedded.ReadFile(file)
		if err != nil {
			return err
		}
		if err := add(tar.Header{Name: "templates/" + filepath.Base(file), Mode: 0o644}, data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return f.Close()
}
