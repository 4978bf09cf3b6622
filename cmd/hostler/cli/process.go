package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"hostler/agent/client"
)

// Main runs the command line of this process and returns its exit code. The
// first SIGINT or SIGTERM cancels the command; the second ends the process.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, env{
		Args:   os.Args[1:],
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		Getenv: os.Getenv,
		Now:    time.Now,
		Term:   processTerminal{},
		Dial: func(socket string, log *slog.Logger) agent {
			log.Debug("the agent is queried on its socket", "socket", socket)
			return client.New(socket)
		},
	})
}
