package lxc

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// suffixPrivileged marks an image whose files have the ids of privileged guests.
const suffixPrivileged = "-privileged"

// imageNote is the file beside an unpacked image.
type imageNote struct {
	Reference string    `json:"reference"`
	Size      int64     `json:"size"` // bytes of the packed image
	Created   time.Time `json:"created"`
}

func (d *Driver) imagePath(digest string) string { return d.pool(dirImages, digest) }

func (d *Driver) imageNotePath(digest string) string { return d.own("images", digest+".json") }

// EnsureImage implements containerbroker.ImageStore. It unpacks an image once,
// with the ids of unprivileged guests. The returned id is the image's digest.
func (d *Driver) EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	id, err := d.flights.Do(ctx, ref, progress, func(ctx context.Context, report func(containerbroker.Report)) (string, error) {
		return d.ensure(ctx, ref, report)
	})
	return id, fault.Explain(err, "cannot get image %q", oneline.Address(ref))
}

func (d *Driver) ensure(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	for _, daemon := range []struct{ prefix, name string }{{"lxd:", "LXD"}, {"incus:", "Incus"}} {
		if strings.HasPrefix(ref, daemon.prefix) {
			return "", fault.New(fault.NotFound, "it is an alias inside %s, whose images other containers cannot use", daemon.name)
		}
	}
	if d.opts.Images == nil {
		return "", fault.New(fault.NotFound, "there are no image sources")
	}
	artifact, err := d.opts.Images.Ensure(ctx, ref, images.FormatLXD, func(message string, percent int) {
		progress.Report("image", message, percent)
	})
	if err != nil {
		return "", err
	}
	if !digestPattern.MatchString(artifact.Digest) {
		return "", fault.New(fault.Invalid, "its digest is %q", artifact.Digest)
	}
	if err := d.prepare(); err != nil {
		return "", err
	}
	// References to the same content share the unpacked files.
	return d.flights.Do(ctx, artifact.Digest, progress, func(ctx context.Context, report func(containerbroker.Report)) (string, error) {
		if _, err := os.Lstat(d.imagePath(artifact.Digest)); err == nil {
			return artifact.Digest, nil
		}
		containerbroker.Progress(report).Report("image", "unpacking "+oneline.Address(ref), -1)
		return artifact.Digest, d.addImage(ctx, artifact)
	})
}

// addImage unpacks an image. The image gets its name when it is complete and
// durable.
func (d *Driver) addImage(ctx context.Context, a images.Artifact) error {
	text, err := json.Marshal(imageNote{Reference: a.Reference, Size: a.Size, Created: time.Now().UTC()})
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.own("images"), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := atomicfile.Write(d.imageNotePath(a.Digest), text, 0o600); err != nil {
		return err
	}
	tmp := d.pool(dirImages, "."+a.Digest+".tmp")
	if err := d.removeVolume(tmp); err != nil {
		return err
	}
	if err := d.makeVolume(tmp); err != nil {
		return err
	}
	if err := d.unpack(ctx, a, tmp); err != nil {
		return errors.Join(err, d.removeVolume(tmp))
	}
	return d.finishImage(tmp, d.imagePath(a.Digest))
}

// finishImage makes an unpacked image durable and gives it its name.
func (d *Driver) finishImage(tmp, to string) error {
	if err := syncAll(tmp); err != nil {
		return err
	}
	return renameNew(tmp, to)
}

// imageFor returns the unpacked image for a new machine, with the ids of its
// kind.
func (d *Driver) imageFor(ctx context.Context, m containerbroker.Machine) (string, error) {
	if !digestPattern.MatchString(m.ImageID) {
		return "", fault.New(fault.Invalid, "%q is not an image", m.ImageID)
	}
	plain := d.imagePath(m.ImageID)
	if _, err := os.Lstat(plain); err != nil {
		return "", fault.New(fault.NotFound, "its image is not unpacked: %w", err)
	}
	if !m.Privileged {
		return plain, nil
	}
	kind := plain + suffixPrivileged
	_, err := d.flights.Do(ctx, kind, nil, func(ctx context.Context, _ func(containerbroker.Report)) (string, error) {
		if _, err := os.Lstat(kind); err == nil {
			return kind, nil
		}
		// A step of another machine may make the same image.
		unlock, err := lockFolder(ctx, d.own("making"))
		if err != nil {
			return "", err
		}
		defer unlock()
		if _, err := os.Lstat(kind); err == nil {
			return kind, nil
		}
		tmp := d.pool(dirImages, "."+m.ImageID+suffixPrivileged+".tmp")
		if err := d.removeVolume(tmp); err != nil {
			return "", err
		}
		err = d.cloneVolume(ctx, plain, tmp)
		if err == nil {
			err = d.shift(ctx, tmp, true)
		}
		if err != nil {
			return "", errors.Join(err, d.removeVolume(tmp))
		}
		return kind, d.finishImage(tmp, kind)
	})
	return kind, err
}

// syncAll makes all files of a filesystem durable.
func syncAll(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return syncfs(f)
}
