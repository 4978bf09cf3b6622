package kvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/paths"
	"hostler/internal/run"
)

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// referenceAttr is the name of the extended attribute that holds the reference
// for which an image was fetched. On a filesystem without extended attributes
// only the reference is lost.
const referenceAttr = "user.hostler.reference"

// imageName returns the file name of an image. The file is the backing file of
// root disks, so it is never written again.
func imageName(namespace, digest string) string {
	return "hostler-image-" + namespace + "-" + digest + ".qcow2"
}

// EnsureImage implements containerbroker.ImageStore. The returned id is the
// digest of the file that the reference names.
func (d *Driver) EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	id, err := d.flights.Do(ctx, ref, progress, func(ctx context.Context, report func(containerbroker.Report)) (string, error) {
		return d.ensure(ctx, ref, report)
	})
	if err != nil {
		return "", fmt.Errorf("cannot get image %q: %w", oneline.Address(ref), err)
	}
	return id, nil
}

func (d *Driver) ensure(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	if strings.HasPrefix(ref, "lxd:") {
		return "", fault.New(fault.NotFound, "it is an alias inside LXD, which has no disks for KVM guests")
	}
	if strings.HasPrefix(ref, "kvm:") {
		return "", fault.New(fault.NotFound, "it is the disk of a machine that was taken over, which cannot be copied; declare an image for a new machine")
	}
	if d.opts.Images == nil {
		return "", fault.New(fault.NotFound, "there are no image sources")
	}
	artifact, err := d.opts.Images.Ensure(ctx, ref, images.FormatDisk, func(message string, percent int) {
		progress.Report("image", message, percent)
	})
	if err != nil {
		return "", err
	}
	c, err := d.open(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	where, err := c.openPool(d.opts.Pool)
	if err != nil {
		return "", err
	}
	name := imageName(d.opts.Namespace, artifact.Digest)
	if err := d.place(ctx, artifact.Path, where.path(name), ref, progress); err != nil {
		return "", err
	}
	if _, err := where.lookup(name); fault.Is(err, fault.NotFound) {
		_, err = where.volumes(true)
		if err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	return artifact.Digest, nil
}

// place makes the file of an image if it is missing. References to the same
// content share a file, so a second caller for the same file waits for the
// first.
func (d *Driver) place(ctx context.Context, from, to, ref string, progress containerbroker.Progress) error {
	_, err := d.flights.Do(ctx, to, progress, func(ctx context.Context, report func(containerbroker.Report)) (string, error) {
		if _, err := os.Stat(to); err == nil {
			return to, nil
		}
		d.swept.Do(func() { d.removePartial(filepath.Dir(to)) })
		containerbroker.Progress(report).Report("image", "putting "+oneline.Address(ref)+" into storage pool "+d.opts.Pool, -1)
		return to, d.makeFile(ctx, from, to, ref)
	})
	return err
}

// partial returns the path of the incomplete file of an image.
func partial(image string) string {
	return filepath.Join(filepath.Dir(image), "."+filepath.Base(image)+paths.TempSuffix)
}

// removePartial removes the incomplete files of images that killed agents of this
// namespace left in a folder. Meanwhile, this driver must not make an image.
func (d *Driver) removePartial(dir string) {
	left, _ := filepath.Glob(partial(filepath.Join(dir, imageName(d.opts.Namespace, "*"))))
	for _, path := range left {
		name, _ := strings.CutPrefix(strings.TrimSuffix(filepath.Base(path), paths.TempSuffix), ".")
		if _, ours := imageOf(d.opts.Namespace, name); ours {
			d.log.Info("Removed the incomplete file of an image.", "path", path, "error", os.Remove(path))
		}
	}
}

// makeFile makes the file of an image, either a copy of a qcow2 disk or a
// conversion of a raw disk. The file gets its name only when it is complete and
// synced (Z8). Two calls for the same file must not run at the same time.
func (d *Driver) makeFile(ctx context.Context, from, to, ref string) error {
	tmp := partial(to)
	defer func() { _ = os.Remove(tmp) }()
	_ = os.Remove(tmp)
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	head := make([]byte, 4)
	if _, err := io.ReadFull(in, head); err != nil {
		return fault.New(fault.Invalid, "the image is too short")
	}
	if string(head) == "QFI\xfb" {
		err = copyFile(in, tmp)
	} else {
		err = d.convert(ctx, from, tmp)
	}
	if err != nil {
		return fmt.Errorf("cannot put it into the storage pool: %w", err)
	}
	_ = unix.Setxattr(tmp, referenceAttr, []byte(ref), 0)
	if err := syncFile(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, to); err != nil {
		return err
	}
	return syncFile(filepath.Dir(to))
}

func copyFile(in *os.File, to string) error {
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// convert makes a qcow2 file from a raw disk. It names the source format,
// because otherwise qemu-img would detect it from the disk's first bytes, which
// may imitate another format.
func (d *Driver) convert(ctx context.Context, from, to string) error {
	if d.opts.Runner == nil {
		return fault.New(fault.Invalid, "it is not a qcow2 disk")
	}
	_, err := d.opts.Runner.Run(ctx, run.Command{
		Path: paths.QemuImg, Args: []string{"convert", "-f", "raw", "-O", "qcow2", from, to}, Dir: filepath.Dir(to), Timeout: 30 * time.Minute,
	})
	if err != nil {
		return err
	}
	return os.Chmod(to, 0o600)
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// ListImages implements containerbroker.ImageStore.
func (d *Driver) ListImages(ctx context.Context) ([]containerbroker.HypervisorImage, error) {
	all, unsure, err := d.listImages(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("cannot list the images in libvirt's pool: %w", err)
	}
	if unsure != nil {
		d.log.Warn("The users of the images cannot all be read.", "error", unsure)
	}
	return all, nil
}

// listImages returns hostler's images. If unsure is not nil, the users of some
// images could not be read. With everywhere, users in other pools count too, and
// libvirt rescans the pools first.
func (d *Driver) listImages(ctx context.Context, everywhere bool) (all []containerbroker.HypervisorImage, unsure, err error) {
	c, err := d.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	where, err := c.openPool(d.opts.Pool)
	if err != nil {
		return nil, nil, err
	}
	volumes, err := where.volumes(everywhere)
	if err != nil {
		return nil, nil, err
	}
	instances, err := d.List(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	overlays, closed := volumes, error(nil)
	if everywhere {
		var others []libvirt.StorageVol
		others, closed = where.elsewhere()
		overlays = slices.Concat(volumes, others)
	}
	users, unsure, err := d.usersOf(where, overlays, instances)
	if err != nil {
		return nil, nil, err
	}
	unsure = errors.Join(unsure, closed)
	for _, v := range volumes {
		path := where.path(v.Name)
		id, ours := imageOf(d.opts.Namespace, v.Name)
		info, err := os.Stat(path)
		if !ours || err != nil {
			continue
		}
		image := containerbroker.HypervisorImage{ID: id, Size: info.Size(), Created: info.ModTime(), Ours: true, UsedBy: users[id]}
		value := make([]byte, 2048)
		if n, err := unix.Getxattr(path, referenceAttr, value); err == nil {
			image.Reference = clean(string(value[:n]), 2048)
		}
		all = append(all, image)
	}
	slices.SortFunc(all, func(a, b containerbroker.HypervisorImage) int { return strings.Compare(a.ID, b.ID) })
	return all, unsure, nil
}

// DeleteImage implements containerbroker.ImageStore.
func (d *Driver) DeleteImage(ctx context.Context, id string) error {
	return fault.Explain(d.deleteImage(ctx, id), "cannot delete image %s", id)
}

func (d *Driver) deleteImage(ctx context.Context, id string) error {
	all, unsure, err := d.listImages(ctx, true)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(i containerbroker.HypervisorImage) bool { return i.ID == id })
	if at < 0 {
		return nil
	}
	if users := all[at].UsedBy; len(users) > 0 {
		return fault.New(fault.Conflict, "it is used by %s: first delete those machines, with their disks; released instances with libvirt's tools", strings.Join(users, ", "))
	}
	if unsure != nil {
		return fmt.Errorf("cannot find its users: %w", unsure)
	}
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	where, err := c.openPool(d.opts.Pool)
	if err != nil {
		return err
	}
	return where.remove(imageName(d.opts.Namespace, id))
}
