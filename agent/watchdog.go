package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// keepAlive is the worker that feeds the service manager's watchdog. It calls
// answers() three times per watchdog interval and feeds the watchdog if
// answers() returns nil within a third of the interval. If answers is nil, it
// feeds the watchdog as long as the process runs.
func keepAlive(answers func(context.Context) error, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		interval, err := daemon.SdWatchdogEnabled(false)
		if err != nil || interval == 0 {
			return err
		}
		tick := time.NewTicker(interval / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if err := within(ctx, interval/3, answers); err != nil {
				if ctx.Err() == nil {
					log.Warn("The watchdog is not fed: the agent does not answer.", "error", err)
				}
				continue
			}
			if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				return fmt.Errorf("cannot answer the watchdog: %w", err)
			}
		}
	}
}

func within(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if f == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// answers reads the store and calls the API over its socket. Only a timeout is
// an error, because any other error still shows that the agent works. A restart
// would not help against a full disk or too many requests, and would interrupt
// the requests that still work.
func (h *host) answers(ctx context.Context) error {
	_, err := h.local.Get(ctx, state.ID{Kind: spec.KindHost, Name: spec.HostName})
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("the store cannot be read: %w", err)
	}
	c := client.New(h.paths.Socket())
	defer c.Close()
	if _, err = c.Version(ctx); ctx.Err() != nil {
		return fmt.Errorf("the API does not answer: %w", err)
	}
	return nil
}
