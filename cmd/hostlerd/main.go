// Command hostlerd is the agent.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"hostler/agent/logging"
	"hostler/agent/spec"
)

// The first thread stays with main. Threads that enter a guest's namespaces end with
// their goroutine, but Go never ends the first one, and /proc/self and /proc/net show
// the namespaces of the first thread.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, logging.ErrorMark()+"hostlerd:", spec.Summary(err))
		os.Exit(1)
	}
}
