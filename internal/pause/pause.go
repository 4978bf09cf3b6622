// Package pause waits for a time that a context may cut short.
package pause

import (
	"context"
	"time"
)

// For returns after d, or with the context's error when ctx ends, e.g. between
// two looks at a device that the kernel is making.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
