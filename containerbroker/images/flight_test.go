package images

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// A panic in the work on an image becomes an error for all its callers, and
// ends nothing else.
func TestPanickingFlightLands(t *testing.T) {
	fs := flights{log: slog.New(slog.DiscardHandler)}
	for range 2 { // the key is free again
		_, err := fs.do(t.Context(), "bad", nil, func(context.Context, Progress) (Artifact, error) { panic("bad archive") })
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "panic: bad archive") {
			t.Errorf("got %v", err)
		}
	}
	good, err := fs.do(t.Context(), "bad", nil, func(context.Context, Progress) (Artifact, error) { return Artifact{Digest: "d"}, nil })
	if err != nil || good.Digest != "d" {
		t.Errorf("got %+v, %v", good, err)
	}
}
