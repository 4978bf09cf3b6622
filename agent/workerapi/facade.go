package workerapi

import (
	"context"
	"slices"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// ensureImage makes the agent prepare an image, because a worker in a separate
// process has no rights to do so. The agent reads files and contacts servers
// for an image, so the reference must be the image of a declared machine of the
// type.
func (c *call) ensureImage() error {
	if c.t == "" {
		return fault.New(fault.Invalid, "cannot make an image usable: name one container type")
	}
	var req client.ImageRequest
	c.h.o.Streams.ImageWork(c.w, c.r, &req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		if req.Reference == "" {
			return client.Image{}, fault.New(fault.Invalid, "cannot make an image usable: a reference is needed")
		}
		if declared, err := c.h.named.declares(ctx, c.store, c.t, req.Reference); err != nil {
			return client.Image{}, err
		} else if !declared {
			return client.Image{}, fault.New(fault.Forbidden, "cannot make image %q usable: no %s machine is declared with it", fault.Clip(oneline.Address(req.Reference), 256), c.t)
		}
		id, err := c.h.o.Ensure(ctx, c.t, req.Reference, report)
		return client.Image{Reference: req.Reference, Digest: id, Where: string(c.t), UsedBy: []string{}}, err
	})
	return nil
}

// counts adds a type's passes and operations to the agent's metrics.
func (c *call) counts() error {
	var in Counts
	if err := raw.Decode(c.r, &in); err != nil {
		return err
	}
	if c.t == "" {
		return fault.New(fault.Invalid, "cannot count: name one container type")
	}
	if len(in.Passes) > MaxCounts || len(in.Operations) > MaxCounts {
		return fault.New(fault.Invalid, "cannot count: a request holds at most %d passes and operations", MaxCounts)
	}
	for _, n := range slices.Concat(in.Passes, in.Operations) {
		if n.Seconds < 0 {
			return fault.New(fault.Invalid, "cannot count: %v seconds is not a valid duration", n.Seconds)
		}
	}
	if c.h.o.Count != nil {
		c.h.o.Count(c.t, in)
	}
	answer(c.w, struct{}{})
	return nil
}
