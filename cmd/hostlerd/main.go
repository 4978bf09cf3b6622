// Command hostlerd is the agent.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"hostler/agent/logging"
	"hostler/agent/spec"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, logging.ErrorMark()+"hostlerd:", spec.Summary(err))
		os.Exit(1)
	}
}
