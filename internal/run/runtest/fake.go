// Package runtest holds a Runner for tests that starts no program.
package runtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"hostler/internal/run"
)

// Program answers a command. It can use the test's own state, and call the
// command's OnLine and OnStatus.
type Program func(ctx context.Context, c run.Command) (run.Result, error)

// Fake answers commands by the program's name or whole path. For a command
// without an answer, Run returns an error that names the command.
type Fake struct {
	mu       sync.Mutex
	programs map[string]Program
	calls    []run.Command
}

var _ run.Runner = (*Fake)(nil)

// NewFake returns a Fake without programs.
func NewFake() *Fake { return &Fake{programs: map[string]Program{}} }

// Handle makes p answer the commands whose path, or whose path's last element,
// is name.
func (f *Fake) Handle(name string, p Program) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.programs[name] = p
}

// Print answers every command called name with the given stdout and success.
func (f *Fake) Print(name, stdout string) {
	f.Handle(name, func(context.Context, run.Command) (run.Result, error) {
		return run.Result{Stdout: []byte(stdout)}, nil
	})
}

// Fail answers every command called name with an exit code and stderr.
func (f *Fake) Fail(name string, code int, stderr string) {
	f.Handle(name, func(_ context.Context, c run.Command) (run.Result, error) { return Exit(c, code, stderr) })
}

// Exit returns a Runner's result for a program that ended with code.
func Exit(c run.Command, code int, stderr string) (run.Result, error) {
	result := run.Result{Stderr: []byte(stderr), ExitCode: code}
	if code == 0 {
		return result, nil
	}
	return result, &run.ExitError{Name: c.Name(), Code: code, Tail: run.Tail(result.Stderr)}
}

// Run implements run.Runner. It reads Stdin to its end before the program
// answers, and keeps the input in the recorded call.
func (f *Fake) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if err := ctx.Err(); err != nil {
		return run.Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	if c.Stdin != nil {
		input, err := io.ReadAll(c.Stdin)
		if err != nil {
			return run.Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
		}
		c.Stdin = bytes.NewReader(input)
	}
	f.mu.Lock()
	f.calls = append(f.calls, c)
	program := f.programs[c.Path]
	if program == nil {
		program = f.programs[c.Name()]
	}
	f.mu.Unlock()
	if program == nil {
		return run.Result{}, fmt.Errorf("cannot run %s: no such program in this test", c)
	}
	return program(ctx, c)
}

// Calls returns the commands run so far, oldest first.
func (f *Fake) Calls() []run.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]run.Command(nil), f.calls...)
}

// Reset deletes the recorded calls.
func (f *Fake) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// String lists the recorded commands, one per line.
func (f *Fake) String() string {
	var b strings.Builder
	for _, c := range f.Calls() {
		fmt.Fprintln(&b, c)
	}
	return b.String()
}
