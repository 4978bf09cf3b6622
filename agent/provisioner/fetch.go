package provisioner

import "context"

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
		return "", err // it says which image
	}
	return image, nil
}
