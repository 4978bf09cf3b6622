package lxc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Console implements containerbroker.GuestAccess. The monitor hands over the
// terminal, and takes it back when the connection ends.
func (d *Driver) Console(ctx context.Context, name string, conn io.ReadWriter) error {
	return fault.Explain(d.console(ctx, name, conn), "cannot open the console of instance %q", name)
}

func (d *Driver) console(ctx context.Context, name string, conn io.ReadWriter) error {
	if err := d.enterable(ctx, name); err != nil {
		return err
	}
	c, err := d.connect(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	a, err := d.askOn(c, cmdTTY, nil)
	if err != nil {
		return err
	}
	if a.file == nil {
		return fault.New(fault.Conflict, "another user has it open (LXC answered %d)", a.ret)
	}
	terminal := a.file
	defer func() { _ = terminal.Close() }()
	done := make(chan struct{}, 3)
	go func() { _, _ = io.Copy(terminal, conn); done <- struct{}{} }()
	go func() { _, _ = io.Copy(conn, terminal); done <- struct{}{} }()
	go func() { _, _ = io.Copy(io.Discard, c); done <- struct{}{} }() // ends with the instance
	select {
	case <-done:
	case <-ctx.Done():
	}
	return nil
}

// Log implements containerbroker.GuestAccess. liblxc keeps two files.
func (d *Driver) Log(_ context.Context, name string) (io.ReadCloser, error) {
	if _, err := d.readEntry(name); err != nil {
		return nil, fmt.Errorf("cannot read the console log of instance %q: %w", name, err)
	}
	var text []byte
	for _, file := range []string{fileConsole + ".1", fileConsole} {
		part, err := readFile(filepath.Join(d.instance(name), file), maxConsole)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot read the console log of instance %q: %w", name, err)
		}
		text = append(text, part...)
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// maxConsole bounds one file of a console in bytes. liblxc starts a new file
// after 1 MB.
const maxConsole = 4 << 20

// consoleTail returns the last lines of an instance's console, or "".
func (d *Driver) consoleTail(name string) string {
	log, err := d.Log(context.Background(), name)
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(log)
	return oneline.Last(oneline.Lines(string(text[max(len(text)-4096, 0):])), 5)
}
