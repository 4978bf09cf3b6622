package lxd

import (
	"context"
	"io"
	"strings"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// logTimeout bounds the reading of a log for an error message.
const logTimeout = 3 * time.Second

// maxLog bounds, in bytes, how much of a log is read.
const maxLog = 1 << 20

// startLog returns the last errors of LXC's own log, or "". They explain a
// failed start; LXD's own error only names the failed command.
func (d *Driver) startLog(c *client, name string) string {
	var errs []string
	for _, line := range d.tail(c.ctx, instancePath(name)+"/logs/lxc.log") {
		// lxc NAME TIME LEVEL SOURCE - FILE:FUNCTION:LINE - MESSAGE
		if _, message, ok := strings.Cut(line, " ERROR "); ok {
			if _, text, ok := strings.Cut(message, " - "); ok {
				message = text
			}
			errs = append(errs, message)
		}
	}
	return oneline.Last(errs, 3)
}

// consoleTail returns the last lines of the console log, or "" if the log is
// empty or cannot be read.
func (d *Driver) consoleTail(ctx context.Context, name string) string {
	return oneline.Last(d.tail(ctx, instancePath(name)+"/console"), 5)
}

func (d *Driver) tail(ctx context.Context, path string) []string {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	body, err := d.file(ctx, path)
	if err != nil {
		return nil
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxLog))
	if err != nil {
		return nil
	}
	return oneline.Lines(string(data))
}

// died returns the error for an instance that no longer runs, with the last
// lines of its console.
func (d *Driver) died(ctx context.Context, name string, status containerbroker.Status) error {
	return containerbroker.WithConsole(fault.New(fault.Transient, "it is %s", status), d.consoleTail(ctx, name))
}
