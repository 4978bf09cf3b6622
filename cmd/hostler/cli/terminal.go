package cli

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"hostler/agent/client/frames"
)

// terminal holds the terminal operations that the commands use.
type terminal interface {
	// Input, Output and Messages report whether standard input, output and
	// error are terminals.
	Input() bool
	Output() bool
	Messages() bool
	// Size returns the terminal's width and height in characters, or 0 without a
	// terminal.
	Size() (width, height int)
	attached
}

// attached holds the operations for commands that connect the terminal to a
// guest.
type attached interface {
	// Raw switches the terminal to raw mode, in which it passes every key on.
	// restore ends this mode. Without a terminal, both do nothing.
	Raw() (restore func(), err error)
	// Resized sends the present size, and then each new size, until ctx ends.
	Resized(ctx context.Context) <-chan frames.WindowSize
}

// processTerminal is the terminal of this process.
type processTerminal struct{}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func (processTerminal) Input() bool    { return isTerminal(os.Stdin) }
func (processTerminal) Output() bool   { return isTerminal(os.Stdout) }
func (processTerminal) Messages() bool { return isTerminal(os.Stderr) }

func (processTerminal) Size() (int, int) {
	for _, f := range []*os.File{os.Stdout, os.Stderr, os.Stdin} {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return w, h
		}
	}
	return 0, 0
}

func (t processTerminal) Raw() (func(), error) {
	if !t.Input() {
		return func() {}, nil
	}
	fd := int(os.Stdin.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(fd, old) }, nil
}

func (t processTerminal) Resized(ctx context.Context) <-chan frames.WindowSize {
	sizes := make(chan frames.WindowSize, 1)
	changed := make(chan os.Signal, 1)
	changed <- unix.SIGWINCH // the size may have changed since it was last read
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		defer signal.Stop(changed)
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			w, h := t.Size()
			if w == 0 || h == 0 {
				continue // no terminal, or a terminal without a size
			}
			select {
			case <-ctx.Done():
				return
			case sizes <- frames.WindowSize{Width: w, Height: h}:
			}
		}
	}()
	return sizes
}
