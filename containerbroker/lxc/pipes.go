package lxc

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/run"
)

// onPipes runs a program with pipes as its streams.
func (d *Driver) onPipes(ctx context.Context, program run.Attached, req containerbroker.ExecRequest) (int, error) {
	var open []*os.File
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			open = append(open, r, w)
		}
		return r, w, err
	}
	in, feed, err := pipe()
	if err != nil {
		return -1, err
	}
	stdout, outW, err := pipe()
	if err != nil {
		return -1, err
	}
	stderr, errW, err := pipe()
	if err != nil {
		return -1, err
	}
	program.Stdin, program.Stdout, program.Stderr = in, outW, errW
	go func() {
		if req.Stdin != nil {
			_, _ = io.Copy(feed, req.Stdin)
		}
		_ = feed.Close()
	}()
	outputs := make(chan error, 2)
	go func() { outputs <- copyOutput(req.Stdout, stdout) }()
	go func() { outputs <- copyOutput(req.Stderr, stderr) }()
	code, err := d.opts.Host.Attach(ctx, program)
	_, _, _ = in.Close(), outW.Close(), errW.Close()
	// A process that the command left behind may hold the streams open for ever.
	limit := time.Now().Add(leftOpen)
	_, _ = stdout.SetReadDeadline(limit), stderr.SetReadDeadline(limit)
	if cut := errors.Join(<-outputs, <-outputs); err == nil && cut != nil {
		err = fault.New(fault.Transient, "its output was cut short: %w", cut)
	}
	return code, err
}

// leftOpen is how long Exec reads outputs that are open after the command's end.
const leftOpen = time.Second

// copyOutput copies an output until its end. Its reader must not wait for ever,
// so a deadline is no error.
func copyOutput(to io.Writer, from *os.File) error {
	if to == nil {
		to = io.Discard
	}
	_, err := io.Copy(to, from)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
