package lxc

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler/containerbroker"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
)

// ListImages implements containerbroker.ImageStore.
func (d *Driver) ListImages(context.Context) ([]containerbroker.HypervisorImage, error) {
	all, err := d.listImages()
	return all, fault.Explain(err, "cannot list the unpacked images")
}

func (d *Driver) listImages() ([]containerbroker.HypervisorImage, error) {
	if err := d.checkPool(); err != nil {
		return nil, err
	}
	found, err := os.ReadDir(d.pool(dirImages))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := d.entries()
	if err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for _, e := range entries {
		if e.inPool && e.note != nil {
			users[e.note.Image] = append(users[e.note.Image], e.name)
		}
	}
	var all []containerbroker.HypervisorImage
	for _, f := range found {
		if !digestPattern.MatchString(f.Name()) {
			continue
		}
		var n imageNote
		text, err := readFile(d.imageNotePath(f.Name()), maxNote)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err != nil {
			d.log.Warn("The note of an unpacked image cannot be read.", "image", f.Name(), "error", err)
		}
		all = append(all, containerbroker.HypervisorImage{
			ID: f.Name(), Size: n.Size, Created: n.Created, Ours: true, Reference: n.Reference, UsedBy: users[f.Name()],
		})
	}
	return all, nil
}

// DeleteImage implements containerbroker.ImageStore.
func (d *Driver) DeleteImage(_ context.Context, id string) error {
	return fault.Explain(d.deleteImage(id), "cannot delete image %s", id)
}

func (d *Driver) deleteImage(id string) error {
	all, err := d.listImages()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(i containerbroker.HypervisorImage) bool { return i.ID == id })
	if at < 0 {
		return nil
	}
	if users := all[at].UsedBy; len(users) > 0 {
		return fault.New(fault.Conflict, "it is used by %s", strings.Join(users, ", "))
	}
	return errors.Join(d.dropImage(id+suffixPrivileged), d.dropImage(id), atomicfile.Remove(d.imageNotePath(id)))
}

// suffixDropped marks an image of which some files may be removed already.
const suffixDropped = ".dropped"

// dropImage removes an unpacked image under another name, so that no process takes
// the half of it for the whole. A missing one is success.
func (d *Driver) dropImage(name string) error {
	dropped := d.pool(dirImages, "."+name+suffixDropped)
	if err := d.removeVolume(dropped); err != nil {
		return err
	}
	if err := d.refuseMounts(d.imagePath(name)); err != nil {
		return err
	}
	if err := renameNew(d.imagePath(name), dropped); err != nil {
		return unless(err, os.ErrNotExist)
	}
	return d.removeVolume(dropped)
}

// dropImages removes what interrupted deletions left of images.
func (d *Driver) dropImages() error {
	found, err := filepath.Glob(d.pool(dirImages, ".*"+suffixDropped))
	for _, path := range found {
		err = errors.Join(err, d.removeVolume(path))
	}
	return err
}
