package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/internal/hostlock"
)

// factsInterval is how often the host's facts are looked at: nothing tells of
// a kernel parameter that changes.
const factsInterval = 5 * time.Second

// facts are what a provisioner needs to know of the kernel and does not see
// where it is a unit of its own (ProcSubset=pid).
func (h *host) facts() spec.HostFacts {
	// Without br_netfilter the switch is absent.
	value, err := os.ReadFile(filepath.Join(h.paths.ProcSys(), "net/bridge/bridge-nf-call-ip6tables"))
	return spec.HostFacts{
		Boot:        hostlock.BootID(),
		FiltersIPv6: err == nil && strings.TrimSpace(string(value)) == "1",
	}
}

// followFacts is the worker that keeps them in the host's record.
func (h *host) followFacts(every time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			record, err := h.hostRecord(ctx)
			if err != nil {
				return err
			}
			if facts := h.facts(); facts != record.Facts {
				if err := h.updateHost(ctx, func(r *spec.HostRecord) { r.Facts = facts }); err != nil {
					return err
				}
			}
		}
	}
}
