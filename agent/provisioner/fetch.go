package provisioner

import (
	"context"
	"fmt"
)

// fetch makes the image usable and returns the hypervisor's id of it.
func (o *operation) fetch(ctx context.Context, ref string) (string, error) {
	o.show(ctx, "fetching image "+ref)
	waitCtx, done := o.wait(ctx)
	defer done()
	image, err := o.w.Images.EnsureImage(waitCtx, ref, o.progress(ctx))
	switch {
	case overtaken(waitCtx):
		return "", errOvertaken
	case err != nil:
		return "", fmt.Errorf("cannot get image %s: %w", ref, err)
	}
	return image, nil
}
