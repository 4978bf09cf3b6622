package cli

import (
	"context"
	"errors"
	"time"

	"hostler/agent/client"
	"hostler/internal/fault"
)

// reconnect is the pause before a lost watch is opened again.
const reconnect = 500 * time.Millisecond

// again calls watch. After a restart of the agent it calls watch again,
// provided that the watch has shown something before. seen is the number of
// items that the watch has shown. again reports each outage once.
func again(ctx context.Context, seen *int, tell func(string), watch func() error) error {
	reported := -1
	for {
		err := watch()
		switch {
		case errors.Is(err, errEnough):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLookAgain):
			reported = *seen
		case *seen == 0 || !fault.Is(err, fault.Transient) && !errors.Is(err, client.ErrNotRunning):
			return err
		}
		if !errors.Is(err, errLookAgain) && reported != *seen {
			reported = *seen
			tell("lost the agent, trying again")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnect):
		}
	}
}

// notices prints an answer's notices to standard error, e.g. that a hypervisor
// is down.
func (a *app) notices(all []string) {
	for _, text := range all {
		a.remark("note: " + line(text))
	}
}

// remark prints a remark about a watch to standard error.
func (a *app) remark(text string) {
	if !a.quiet {
		_, _ = a.env.Stderr.Write([]byte("hostler: " + text + "\n"))
	}
}
