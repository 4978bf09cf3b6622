package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"hostler/agent/client"
	runner "hostler/internal/run"
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
		Run:    runProgram,
		Dial: func(socket string, log *slog.Logger) agent {
			log.Debug("the agent is queried on its socket", "socket", socket)
			return client.New(socket)
		},
	})
}

// runProgram runs a program with at most 32 MiB of output, of which it keeps the
// end.
func runProgram(ctx context.Context, path string, args ...string) (string, error) {
	result, err := runner.Host{}.Run(ctx, runner.Command{Path: path, Args: args, Limit: 32 << 20, Timeout: time.Minute})
	return string(result.Stdout), err
}
