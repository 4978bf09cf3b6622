package agent

import (
	"context"
	"slices"

	"hostler/agent/client"
	"hostler/internal/hostlock"
	"hostler/internal/units"
)

// lock takes the host lock, shows the wait for it in the status and measures
// the wait. It calls waiting with the process that holds the lock. The returned
// function releases the lock.
func (h *host) lock(ctx context.Context, purpose string, waiting func(string)) (func(), error) {
	began := h.now()
	waits := false
	lock, err := hostlock.Acquire(ctx, h.paths.HostLock(), purpose, func(holder hostlock.Holder) {
		if !waits {
			waits = true
			h.changeWaits(func(all []string) []string { return append(all, purpose) })
		}
		waiting(holder.String())
	})
	if waits {
		h.changeWaits(func(all []string) []string {
			i := slices.Index(all, purpose)
			return slices.Delete(all, i, i+1)
		})
	}
	if err != nil {
		return nil, err
	}
	h.metrics.LockWait.Observe(h.now().Sub(began).Seconds())
	return func() {
		if err := lock.Release(); err != nil {
			h.logger.Warn("The host lock cannot be released.", "error", err)
		}
	}, nil
}

func (h *host) changeWaits(change func([]string) []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = change(h.waits)
}

// locks returns the host lock if a process holds it, with the purposes for
// which this process waits for it, and cloud-init while the holder waits for
// the end of its work.
func (h *host) locks() []client.Lock {
	holder, held := hostlock.Read(h.paths.HostLock())
	if !held {
		return []client.Lock{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []client.Lock{{
		Name: "host", Holder: holder.String(), Purpose: holder.Purpose, Since: holder.Since,
		Waiting: slices.Sorted(slices.Values(h.waits)),
	}}
	if since, held := h.hold.Held(); held {
		all = append(all, client.Lock{
			Name: "packages", Holder: "cloud-init", Purpose: "packages of cloud-init", Since: since,
			Waiting: []string{holder.Purpose},
		})
	}
	return all
}

// cloudInitFailed reports whether systemd knows that cloud-init failed. Such a
// cloud-init leaves no result. From its release 24.3 on, the process of all stages is
// cloud-init-main.service, and cloud-final.service may succeed without it.
func (h *host) cloudInitFailed(ctx context.Context) bool {
	if !hasUnits(h.paths) {
		return false
	}
	return slices.ContainsFunc([]string{"cloud-final.service", "cloud-init-main.service"}, func(name string) bool {
		failed, err := units.Service(name).Failed(ctx)
		return err == nil && failed
	})
}
