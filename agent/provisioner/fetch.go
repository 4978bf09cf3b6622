package provisioner

import (
	"context"

	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// fetch makes the image available to the hypervisor and returns the image's id
// in the hypervisor.
func (o *operation) fetch(ctx context.Context, ref string) (string, error) {
	o.show(ctx, "fetching image "+oneline.Address(ref))
	waitCtx, done := o.wait(ctx, nil)
	defer done()
	image, err := o.w.Images.EnsureImage(waitCtx, ref, o.progress(ctx))
	switch {
	case overtaken(waitCtx):
		return "", errOvertaken
	case fault.Is(err, fault.Forbidden):
		// The agent also refuses an image that the machine's declaration no longer
		// names, so check whether the declaration changed.
		if _, changed := o.stillWanted(ctx); changed != nil {
			return "", changed
		}
		return "", err
	case err != nil:
		return "", err // the error names the image
	}
	return image, nil
}
