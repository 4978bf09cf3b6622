// Package pause waits for a time that a context may cut short.
package pause

import (
	"context"
	"time"
)

// For returns nil after d, or ctx's error as soon as ctx ends. It serves e.g.
// between two checks of a device that the kernel is making.
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
