package cli

import (
	"context"
	"errors"
	"time"

	"hostler/agent/api"
	"hostler/internal/fault"
)

// reconnect is how long a lost watch rests before it is opened again.
const reconnect = 500 * time.Millisecond

// again keeps a watch open through restarts of the agent, once it has shown
// something: seen counts that. Each outage is told once.
func again(ctx context.Context, seen *int, tell func(string), watch func() error) error {
	told := -1
	for {
		err := watch()
		switch {
		case errors.Is(err, errEnough):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLookAgain):
			told = *seen
		case *seen == 0 || !fault.Is(err, fault.Transient) && !errors.Is(err, api.ErrNotRunning):
			return err
		}
		if !errors.Is(err, errLookAgain) && told != *seen {
			told = *seen
			tell("lost the agent, trying again")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnect):
		}
	}
}

// notices prints what an answer lacks to standard error.
func (a *app) notices(all []string) {
	for _, text := range all {
		a.tell("note: " + line(text))
	}
}

// tell prints a remark about a watch to standard error.
func (a *app) tell(text string) {
	if !a.quiet {
		_, _ = a.env.Stderr.Write([]byte("hostler: " + text + "\n"))
	}
}
