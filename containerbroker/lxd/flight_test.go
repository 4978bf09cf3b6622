package lxd

import (
	"context"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// A fetch that panics returns an error and ends nothing else.
func TestPanickingFlightLands(t *testing.T) {
	d := New(Options{Socket: "/nonexistent"})
	for range 2 { // the key is free again
		_, err := d.share(t.Context(), "bad", nil, func(context.Context, *flight) (string, error) { panic("bad archive") })
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "panic: bad archive") {
			t.Errorf("got %v", err)
		}
	}
	if id, err := d.share(t.Context(), "bad", nil, func(context.Context, *flight) (string, error) { return "id", nil }); id != "id" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
}
