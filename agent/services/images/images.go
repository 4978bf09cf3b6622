// Package images gives the API access to the image cache and to the
// hypervisors' images.
package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Service gives access to the cache and to the hypervisors' images.
type Service struct {
	Cache *images.Cache
	// Types are the container types, sorted. Of returns the images in the
	// hypervisor of a type, or an error if the hypervisor does not exist.
	Types []spec.ContainerType
	Of    func(t spec.ContainerType) (containerbroker.ImageStore, error)
	Store state.Store
}

// List implements api.Images.
func (s Service) List(ctx context.Context) ([]client.Image, []string, error) {
	rows, blind, err := s.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	var notices []string
	for _, t := range slices.Sorted(maps.Keys(blind)) {
		notices = append(notices, oneline.Clean(fmt.Sprintf("the images that %s keeps are not listed: %v", t, blind[t]), 1024))
	}
	return rows, notices, nil
}

// look reads the images of the cache and of the hypervisors. blind holds the
// errors of the hypervisors that did not answer. rows still holds the images of
// the others.
func (s Service) look(ctx context.Context) (rows []client.Image, blind map[spec.ContainerType]error, err error) {
	artifacts, err := s.Cache.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows, blind = []client.Image{}, map[spec.ContainerType]error{}
	for _, a := range artifacts {
		rows = append(rows, imageView(a))
	}
	for _, t := range s.Types {
		store, err := s.Of(t)
		if err != nil {
			continue // the hypervisor does not exist, so it has no images
		}
		own, err := listSoon(ctx, store)
		if err != nil {
			blind[t] = err
			continue
		}
		for _, i := range own {
			row := client.Image{Reference: i.Reference, Digest: i.ID, Format: string(t), Size: i.Size, Created: i.Created, UsedBy: i.UsedBy, Where: string(t)}
			if row.Reference == "" && len(i.Aliases) > 0 {
				row.Reference = string(t) + ":" + i.Aliases[0]
			}
			if row.UsedBy == nil {
				row.UsedBy = []string{}
			}
			rows = append(rows, row)
		}
	}
	return rows, blind, nil
}

// listTimeout is the time that a listing waits for a hypervisor. It is short,
// because operators most often list images when a part of the host hangs.
const listTimeout = 3 * time.Second

func listSoon(ctx context.Context, store containerbroker.ImageStore) ([]containerbroker.HypervisorImage, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return store.ListImages(ctx)
}

func imageView(a images.Artifact) client.Image {
	return client.Image{
		Reference: a.Reference, Digest: a.Digest, Format: string(a.Format), Size: a.Size,
		Created: a.Created, UsedBy: []string{}, Where: "cache",
	}
}

// Delete implements api.Images. It deletes the image from the hypervisors first
// and then, if no version of it is in use, from the cache. A hypervisor that does not answer makes Delete fail
// only if a machine of its type uses the image, or if neither the cache nor
// another hypervisor has it.
func (s Service) Delete(ctx context.Context, reference string) error {
	rows, blind, err := s.look(ctx)
	if err != nil {
		return err
	}
	unknown := notFoundUnless(rows, reference) != nil
	for _, t := range slices.Sorted(maps.Keys(blind)) {
		used, err := s.named(ctx, t, reference)
		if err != nil {
			return err
		}
		if used || unknown {
			return fmt.Errorf("cannot find the users of image %q: %w", oneline.Address(reference), blind[t])
		}
	}
	var failed []error
	for _, row := range rows {
		if row.Reference != reference && row.Digest != reference || row.Where == "cache" {
			continue
		}
		store, err := s.Of(spec.ContainerType(row.Where))
		if err == nil {
			err = store.DeleteImage(ctx, row.Digest)
		}
		if err != nil {
			failed = append(failed, fault.New(fault.KindOf(err), "%s", strings.ReplaceAll(err.Error(), row.Digest, reference)))
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.KindOf(failed[0]), "%s", oneline.Clean(errors.Join(failed...).Error(), 4096))
	}
	for _, row := range rows {
		if (row.Reference == reference || row.Digest == reference) && row.Where == "cache" {
			return s.Cache.Delete(ctx, reference)
		}
	}
	return notFoundUnless(rows, reference)
}

// named reports whether a machine of the type declares the image or was created
// from it.
func (s Service) named(ctx context.Context, t spec.ContainerType, reference string) (bool, error) {
	machines, _, err := s.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return false, fmt.Errorf("cannot read the machines: %w", err)
	}
	all, err := provisioner.Decode(machines, t, provisioner.Config{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(d provisioner.Desired) bool {
		made := d.Status.Instance
		return d.Record.Machine.Image == reference || made != nil && (made.Image == reference || made.ImageID == reference)
	}), nil
}

// Import implements api.ImageBuilder.
func (s Service) Import(ctx context.Context, path, reference, digest string, progress func(client.Progress)) (client.Image, error) {
	a, err := s.Cache.Import(ctx, path, reference, digest, forAPI(progress))
	return imageView(a), err
}

// Build implements api.ImageBuilder.
func (s Service) Build(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (client.Image, error) {
	a, err := s.Cache.Build(ctx, reference, formatOf(t), forAPI(progress))
	return imageView(a), err
}

// formatOf returns the format of the type's images.
func formatOf(t spec.ContainerType) images.Format {
	info, _ := t.Info()
	return images.Format(info.ImageForm)
}

// Ensure implements api.ImageBuilder.
func (s Service) Ensure(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (string, error) {
	store, err := s.Of(t)
	if err != nil {
		return "", err
	}
	return store.EnsureImage(ctx, reference, func(step containerbroker.Report) {
		progress(client.Progress{Message: step.Message, Percent: step.Percent})
	})
}

func forAPI(progress func(client.Progress)) images.Progress {
	return func(message string, percent int) { progress(client.Progress{Message: message, Percent: percent}) }
}

// Names returns the names and ids of the images in a type's hypervisor, or nil if the
// hypervisor does not answer within listTimeout.
func (s Service) Names(ctx context.Context, t spec.ContainerType) []string {
	store, err := s.Of(t)
	if err != nil || store == nil {
		return nil
	}
	rows, err := listSoon(ctx, store)
	if err != nil {
		return nil
	}
	var names []string
	for _, row := range rows {
		names = append(append(names, row.Aliases...), row.ID)
	}
	return names
}

// Check returns an error if an image for a type is not available, i.e. if the
// cache lacks it, own lacks it and no source offers it. own holds the names of
// the hypervisor's images.
func (s Service) Check(ctx context.Context, t spec.ContainerType, reference string, own []string) error {
	return s.Cache.CheckAvailable(ctx, reference, formatOf(t), own)
}

// notFoundUnless returns nil if a row has the reference or this digest, and
// fault.NotFound otherwise.
func notFoundUnless(rows []client.Image, reference string) error {
	for _, row := range rows {
		if row.Reference == reference || row.Digest == reference {
			return nil
		}
	}
	return fault.New(fault.NotFound, "there is no image %q", oneline.Address(reference))
}

// Available implements api.Images.
func (s Service) Available(ctx context.Context) []client.AvailableImage {
	rows := []client.AvailableImage{}
	for _, b := range s.Cache.Buildable(ctx) {
		row := client.AvailableImage{Reference: b.Name, Types: []string{}, From: b.From}
		for _, t := range s.Types {
			if slices.Contains(b.Formats, formatOf(t)) {
				row.Types = append(row.Types, string(t))
			}
		}
		if b.Err != nil {
			row.Problem = oneline.Clean(b.Err.Error(), 1024)
		}
		rows = append(rows, row)
	}
	return rows
}
