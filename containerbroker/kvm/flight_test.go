package kvm

import (
	"log/slog"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// Work that panics is an error for the caller that does it and for those that
// wait for it.
func TestPanickingFlightLands(t *testing.T) {
	d := &Driver{log: slog.New(slog.DiscardHandler), flights: map[string]*flight{}}
	began, bad := make(chan struct{}), make(chan struct{})
	errs := make(chan error, 2)
	go func() {
		_, err := d.once(t.Context(), "bad", func() (string, error) { close(began); <-bad; panic("bad disk") })
		errs <- err
	}()
	<-began
	go func() {
		_, err := d.once(t.Context(), "bad", func() (string, error) { panic("bad disk") })
		errs <- err
	}()
	close(bad)
	for range 2 {
		if err := <-errs; !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "panic: bad disk") {
			t.Errorf("got %v", err)
		}
	}
	if id, err := d.once(t.Context(), "bad", func() (string, error) { return "id", nil }); id != "id" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
}
