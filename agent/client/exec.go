package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"hostler/agent/client/frames"
	"hostler/internal/fault"
)

// ExecOptions is a command for a machine. A nil Stdin is empty; output to a nil
// writer is dropped.
type ExecOptions struct {
	Command        []string
	Env            map[string]string
	Terminal       bool
	Width, Height  int
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize receives a terminal's new sizes. Nil means that the size never
	// changes.
	Resize <-chan frames.WindowSize
}

// Exec runs a command in a machine and returns its exit code. When ctx ends,
// the command's streams are closed. A Read of Stdin may still be in progress
// when Exec returns.
func (c *Client) Exec(ctx context.Context, machine string, o ExecOptions) (int, error) {
	req := ExecRequest{Command: o.Command, Env: o.Env, Terminal: o.Terminal, Width: o.Width, Height: o.Height}
	conn, r, err := c.upgrade(ctx, machinePath(machine, "exec"), req)
	if err != nil {
		return 0, err
	}
	return attach(ctx, conn, r, o)
}

// Console connects rw to a machine's console until either side or ctx ends.
func (c *Client) Console(ctx context.Context, machine string, rw io.ReadWriter) error {
	conn, r, err := c.upgrade(ctx, machinePath(machine, "console"), struct{}{})
	if err != nil {
		return err
	}
	_, err = attach(ctx, conn, r, ExecOptions{Stdin: rw, Stdout: rw})
	return err
}

// upgrade makes a call whose connection then carries frames.
func (c *Client) upgrade(ctx context.Context, path string, in any) (net.Conn, *bufio.Reader, error) {
	req, err := c.request(ctx, http.MethodPost, path, nil, in)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", frames.Protocol)
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReader(conn)
	err = req.Write(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(r, req)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, CallError(ctx, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		err := answerError(resp)
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, r, nil
}

// attach carries the streams until the server's last frame. It returns the exit
// code.
func attach(ctx context.Context, conn net.Conn, r io.Reader, o ExecOptions) (int, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := frames.NewWriter(conn)
	done := make(chan struct{})
	defer close(done)
	go sendInput(w, o.Stdin)
	if o.Resize != nil {
		go sendSizes(w, o.Resize, done)
	}
	code, err := receive(r, o)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return code, err
}

// sendInput sends stdin until it ends or the connection is closed.
func sendInput(w *frames.Writer, stdin io.Reader) {
	if stdin != nil {
		if _, err := io.Copy(w.Stream(frames.Stdin), stdin); err != nil {
			return
		}
	}
	_ = w.Send(frames.Stdin, nil)
}

func sendSizes(w *frames.Writer, sizes <-chan frames.WindowSize, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case s, ok := <-sizes:
			if !ok || w.Send(frames.Resize, s.Encode()) != nil {
				return
			}
		}
	}
}

func receive(r io.Reader, o ExecOptions) (int, error) {
	for {
		kind, payload, err := frames.Read(r)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, fault.New(fault.Transient, "lost the connection to the machine: %w", err)
		}
		switch kind {
		case frames.Stdout:
			err = write(o.Stdout, payload)
		case frames.Stderr:
			err = write(o.Stderr, payload)
		case frames.Exit:
			return frames.DecodeExit(payload)
		case frames.Problem:
			var p Problem
			if err := json.Unmarshal(payload, &p); err != nil {
				return 0, fault.New(fault.Transient, "cannot read the agent's answer: %w", err)
			}
			return 0, p.Fault()
		}
		if err != nil {
			return 0, fmt.Errorf("cannot write the output: %w", err)
		}
	}
}

func write(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}
