package lxd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// The properties that mark an image as hostler's.
const (
	propertyNamespace = "hostler.namespace"
	propertyReference = "hostler.reference"
)

// EnsureImage implements containerbroker.ImageStore. A reference names an image
// of the image sources, one of which, "local", stands for LXD's own aliases.
// lxd:ALIAS or incus:ALIAS names an alias directly. The returned id is LXD's
// fingerprint.
func (d *Driver) EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	id, err := d.flights.Do(ctx, ref, progress, func(ctx context.Context, report func(containerbroker.Report)) (string, error) {
		return d.ensure(ctx, ref, report)
	})
	var said sourceError
	switch {
	case errors.As(err, &said):
		return "", said.error
	case err != nil:
		return "", fmt.Errorf("cannot get image %s: %w", oneline.Address(ref), err)
	}
	return id, nil
}

// sourceError is an error of the image sources. Its text already names the
// image.
type sourceError struct{ error }

// Unwrap keeps the error's kind.
func (e sourceError) Unwrap() error { return e.error }

func (d *Driver) ensure(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	c := d.open(ctx, d.opts.RequestTimeout)
	if alias, ok := strings.CutPrefix(ref, d.opts.Dialect.Type+":"); ok {
		id, err := d.lookup(c, alias)
		if fault.Is(err, fault.NotFound) {
			err = fault.New(fault.NotFound, "%s has no image with that alias or fingerprint; `%s image list` shows those it has", c.dialect.Name, c.dialect.Command)
		}
		return id, err
	}
	if d.opts.Images == nil {
		return "", fault.New(fault.NotFound, "there are no image sources")
	}
	own := func(context.Context) (string, error) {
		id, err := d.recentAlias(c, ref)
		if fault.Is(err, fault.Invalid) { // a virtual machine's image cannot be used, so look on
			err = fault.Wrap(fault.NotFound, err)
		}
		return id, err
	}
	artifact, err := d.opts.Images.EnsureOrOwn(ctx, ref, images.FormatLXD, own, func(message string, percent int) {
		progress.Report("image", message, percent)
	})
	if err != nil {
		return "", sourceError{err}
	}
	if artifact.Own != "" {
		return artifact.Own, nil
	}
	if id, err := d.fingerprint(c, artifact.Digest); err == nil || !fault.Is(err, fault.NotFound) {
		return id, err
	}
	return d.upload(ctx, artifact, ref, progress)
}

// lookup returns the fingerprint of the image with this alias or full
// fingerprint.
func (d *Driver) lookup(c *client, name string) (string, error) {
	id, err := d.recentAlias(c, name)
	if fault.Is(err, fault.NotFound) && len(name) == 64 {
		return d.fingerprint(c, name)
	}
	return id, err
}

// aliasTime is how long the driver uses an alias's image without asking LXD
// again, so that many creates from an image share one request.
const aliasTime = time.Second

type foundAlias struct {
	id     string
	looked time.Time
}

// recentAlias returns an alias's image. The answer may be up to aliasTime old.
func (d *Driver) recentAlias(c *client, name string) (string, error) {
	if known, ok := d.aliases.Load(name); ok && time.Since(known.(foundAlias).looked) < aliasTime {
		return known.(foundAlias).id, nil
	}
	looked := time.Now()
	id, err := d.alias(c, name)
	if err != nil {
		d.aliases.Delete(name)
		return "", err
	}
	d.aliases.Store(name, foundAlias{id, looked})
	return id, nil
}

func (d *Driver) alias(c *client, name string) (string, error) {
	var found api.ImageAliasesEntry
	if _, err := c.get("/1.0/images/aliases/"+url.PathEscape(name), &found); err != nil {
		return "", err
	}
	if found.Type == string(api.InstanceTypeVM) {
		return "", fault.New(fault.Invalid, "it is an image for virtual machines")
	}
	return found.Target, nil
}

func (d *Driver) fingerprint(c *client, id string) (string, error) {
	var found api.Image
	if _, err := c.get("/1.0/images/"+url.PathEscape(id), &found); err != nil {
		return "", err
	}
	return found.Fingerprint, nil
}

// ListImages implements containerbroker.ImageStore with two requests.
func (d *Driver) ListImages(ctx context.Context) ([]containerbroker.HypervisorImage, error) {
	c := d.open(ctx, d.opts.RequestTimeout)
	var found []api.Image
	if _, err := c.get("/1.0/images?recursion=1", &found); err != nil {
		return nil, fmt.Errorf("cannot list %s images: %w", c.dialect.Name, err)
	}
	users, err := d.imageUsers(c)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s images: %w", c.dialect.Name, err)
	}
	all := make([]containerbroker.HypervisorImage, 0, len(found))
	for _, image := range found {
		one := containerbroker.HypervisorImage{
			ID: image.Fingerprint, Size: image.Size, Created: image.UploadedAt,
			Ours: d.ours(image), UsedBy: users[image.Fingerprint],
		}
		if one.Ours {
			one.Reference = image.Properties[propertyReference]
		}
		for _, alias := range image.Aliases {
			one.Aliases = append(one.Aliases, alias.Name)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b containerbroker.HypervisorImage) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func (d *Driver) ours(image api.Image) bool {
	return d.opts.Namespace != "" && image.Properties[propertyNamespace] == d.opts.Namespace
}

// imageUsers maps the fingerprint of each image to the sorted names of the
// instances made from it.
func (d *Driver) imageUsers(c *client) (map[string][]string, error) {
	var instances []api.Instance
	if _, err := c.get("/1.0/instances?recursion=1", &instances); err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for _, i := range instances {
		if id := i.Config[keyBaseImage]; id != "" {
			users[id] = append(users[id], i.Name)
		}
	}
	for _, names := range users {
		slices.Sort(names)
	}
	return users, nil
}

// DeleteImage implements containerbroker.ImageStore.
func (d *Driver) DeleteImage(ctx context.Context, id string) error {
	c := d.open(ctx, d.opts.RequestTimeout)
	err := d.deleteImage(c, id)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot delete image %s: %w", id, err)
	}
	return nil
}

func (d *Driver) deleteImage(c *client, id string) error {
	path := "/1.0/images/" + url.PathEscape(id)
	var found api.Image
	if _, err := c.get(path, &found); err != nil {
		return err
	}
	if !d.ours(found) {
		return fault.New(fault.Conflict, "it was not made by hostler")
	}
	users, err := d.imageUsers(c)
	if err != nil {
		return err
	}
	if names := users[found.Fingerprint]; len(names) > 0 {
		return fault.New(fault.Conflict, "it is used by %s", strings.Join(names, ", "))
	}
	op, err := c.start(http.MethodDelete, path, nil, "")
	if err == nil {
		_, err = d.wait(c, op)
	}
	return err
}
