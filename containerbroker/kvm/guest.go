package kvm

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Exec implements containerbroker.GuestAccess through the guest's agent. It
// reads the whole input before the command starts, and writes the output after
// the command has ended. There are no terminals. With req.Terminal the command
// gets no input, and lines of its output end with CR LF. Interactive use needs
// Console.
func (d *Driver) Exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	code, err := d.exec(ctx, name, req)
	return code, fault.Explain(err, "cannot run a command in instance %q", name)
}

func (d *Driver) exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	if len(req.Command) == 0 {
		return -1, fault.New(fault.Invalid, "the command is empty")
	}
	if req.Terminal {
		req.Stdin, req.Stdout = nil, terminalWriter{req.Stdout}
		req.Stderr = req.Stdout
	}
	input, err := readInput(ctx, req.Stdin)
	if err != nil {
		return -1, err
	}
	c, err := d.open(ctx)
	if err != nil {
		return -1, err
	}
	defer c.Close()
	dom, err := c.domain(name)
	if err != nil {
		return -1, err
	}
	mute := func(live definition) bool {
		_, channel := agentState(live)
		return !channel
	}
	if err := d.awaitAgent(ctx, c, dom, 0, d.agentLimit(dom), mute); err != nil {
		return -1, err
	}
	cmd := command{Path: req.Command[0], Args: req.Command[1:], Input: base64.StdEncoding.EncodeToString(input.data), Capture: true}
	if len(req.Env) > 0 {
		// The agent replaces the whole environment by these variables, so add
		// PATH.
		cmd.Env = append(cmd.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		for _, key := range slices.Sorted(maps.Keys(req.Env)) {
			cmd.Env = append(cmd.Env, key+"="+req.Env[key])
		}
	}
	output, result, out, complaints, err := d.runWithOutput(ctx, c, dom, cmd)
	defer output.tidy(ctx)
	if err != nil {
		return notStarted(err, req)
	}
	if req.Stdout != nil {
		if _, err := req.Stdout.Write(out); err != nil {
			return -1, err
		}
	}
	if req.Stderr != nil {
		if _, err := req.Stderr.Write(complaints); err != nil {
			return -1, err
		}
	}
	if err := output.writeRest(req.Stdout, req.Stderr); err != nil {
		return -1, err
	}
	if input.late() {
		return -1, fault.New(fault.Invalid, "its input came more than %s after the request, and a KVM guest's agent takes no input once the command runs", inputTimeout)
	}
	if result.Truncated {
		return -1, fault.New(fault.Invalid, "its output is longer than the guest agent's limit")
	}
	if result.Signal != 0 {
		return 128 + result.Signal, nil
	}
	return result.Code, nil
}

// notExecuted is part of the guest agent's error for a program that could not
// be started.
const notExecuted = "Failed to execute child process"

// notStarted turns the guest agent's refusal to start a command into a shell's
// exit code. An error for another reason stays.
func notStarted(err error, req containerbroker.ExecRequest) (int, error) {
	code, what := 0, ""
	switch text := err.Error(); {
	case !strings.Contains(text, notExecuted):
		return -1, err
	case strings.Contains(text, "No such file or directory"):
		code, what = containerbroker.ExitNotFound, "no such program in the guest"
	case strings.Contains(text, "Permission denied"):
		code, what = containerbroker.ExitNotExecutable, "the guest may not run it"
	default:
		return -1, fault.New(fault.Invalid, "%v", err)
	}
	if req.Stderr != nil {
		if _, err := fmt.Fprintf(req.Stderr, "%s: %s\n", clean(req.Command[0], 256), what); err != nil {
			return -1, err
		}
	}
	return code, nil
}

// terminalWriter ends lines with CR LF, which a terminal in raw mode needs.
type terminalWriter struct{ w io.Writer }

func (t terminalWriter) Write(p []byte) (int, error) {
	if t.w == nil {
		return len(p), nil
	}
	_, err := t.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), err
}

// Console implements containerbroker.GuestAccess. It opens the serial console
// through its pseudo-terminal on the host, which needs root.
func (d *Driver) Console(ctx context.Context, name string, conn io.ReadWriter) error {
	return fault.Explain(d.console(ctx, name, conn), "cannot open the console of instance %q", name)
}

func (d *Driver) console(ctx context.Context, name string, conn io.ReadWriter) error {
	path, err := d.terminalOf(ctx, name)
	if err != nil {
		return err
	}
	terminal, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = terminal.Close() })
	defer stop()
	go func() {
		defer cancel()
		_, _ = io.Copy(terminal, conn) // ends when the user leaves
	}()
	_, err = io.Copy(conn, terminal) // ends when the guest stops
	_ = terminal.Close()
	if ctx.Err() != nil || err != nil && strings.Contains(err.Error(), "input/output error") {
		return nil
	}
	return err
}

// terminalOf returns the path of a running guest's pseudo-terminal, e.g.
// /dev/pts/3.
func (d *Driver) terminalOf(ctx context.Context, name string) (string, error) {
	c, err := d.open(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	dom, err := c.domain(name)
	if err != nil {
		return "", err
	}
	now, err := status(c, dom)
	if err != nil {
		return "", err
	}
	if !running(now) {
		return "", fault.New(fault.NotReady, "it is %s", now)
	}
	live, err := readDefinition(c, dom, 0)
	if err != nil {
		return "", err
	}
	for _, serial := range live.domain.Devices.Serials {
		if serial.Source == nil || serial.Source.Pty == nil {
			continue
		}
		if path := serial.Source.Pty.Path; strings.HasPrefix(path, "/dev/pts/") && filepath.Clean(path) == path {
			return path, nil
		}
	}
	return "", fault.New(fault.Invalid, "it has no serial console")
}

// Log implements containerbroker.GuestAccess. It opens the file in which
// libvirt logs the serial console, which needs root.
func (d *Driver) Log(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := d.logOf(ctx, name)
	return file, fault.Explain(err, "cannot read the console log of instance %q", name)
}

func (d *Driver) logOf(ctx context.Context, name string) (io.ReadCloser, error) {
	c, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	dom, err := c.domain(name)
	if err != nil {
		return nil, err
	}
	def, err := readDefinition(c, dom, xmlInactive)
	if err != nil {
		return nil, err
	}
	for _, serial := range def.domain.Devices.Serials {
		if serial.Log == nil {
			continue
		}
		file, err := os.OpenFile(serial.Log.File, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if os.IsNotExist(err) {
			break // the guest has never run
		}
		if err != nil {
			return nil, err
		}
		return file, nil
	}
	return io.NopCloser(strings.NewReader("")), nil
}
