package provisioner

import (
	"context"

	"hostler/internal/fault"
)

// fetch makes the image available to the hypervisor and returns its id there.
func (o *operation) fetch(ctx context.Context, ref string) (string, error) {
	o.show(ctx, "fetching image "+ref)
	waitCtx, done := o.wait(ctx)
	defer done()
	image, err := o.w.Images.EnsureImage(waitCtx, ref, o.progress(ctx))
	switch {
	case overtaken(waitCtx):
		return "", errOvertaken
	case fault.Is(err, fault.Forbidden):
		// The agent may answer so because the machine was declared with another
		// image meanwhile.
		if _, changed := o.stillWanted(ctx); changed != nil {
			return "", changed
		}
		return "", err
	case err != nil:
		return "", err // the error names the image
	}
	return image, nil
}
