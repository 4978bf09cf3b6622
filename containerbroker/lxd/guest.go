package lxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/canonical/lxd/shared/ws"
	"github.com/gorilla/websocket"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Exec implements containerbroker.GuestAccess. Two goroutines write the
// outputs, and both have ended when Exec returns. If ctx ends before the
// command, Exec kills the command. A Stdin whose Read never returns leaks one
// goroutine. LXD 5.0 may drop the last output of a command on a terminal if the
// command ends right after it.
func (d *Driver) Exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	code, err := d.exec(ctx, name, req)
	return code, fault.Explain(err, "cannot run a command in instance %q", name)
}

func (d *Driver) exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	if len(req.Command) == 0 {
		return -1, fault.New(fault.Invalid, "the command is empty")
	}
	c := d.open(ctx, d.opts.RequestTimeout)
	op, err := c.start(http.MethodPost, instancePath(name)+"/exec", api.InstanceExecPost{
		Command: req.Command, Environment: req.Env, WaitForWS: true,
		Interactive: req.Terminal, Width: req.Width, Height: req.Height,
	}, "")
	if err != nil {
		return -1, notRunning(err)
	}
	if err := d.pipe(ctx, op, req); err != nil {
		return -1, err
	}
	done, err := d.wait(c, op)
	var refused *operationError
	if errors.As(err, &refused) && ctx.Err() == nil {
		// LXD fails the operation if the command cannot be run at all.
		if code, known := d.opts.Dialect.exitCodes[refused.message]; known {
			refused.code = code
		}
		switch {
		case refused.code == containerbroker.ExitNotExecutable || refused.code == containerbroker.ExitNotFound:
		case d.opts.Dialect.died(refused.message):
			return -1, fault.New(fault.Transient, "the instance ended when the command was to run")
		default:
			return -1, fault.New(fault.Invalid, "%w", err)
		}
		out := req.Stderr
		if req.Terminal {
			out = req.Stdout
		}
		_, _ = fmt.Fprintf(writerOr(out), "%s: %s\n", clean(req.Command[0], maxMessage), refused.message)
		return refused.code, nil
	}
	if err != nil {
		return -1, err
	}
	code, ok := done.Metadata["return"].(float64)
	if !ok {
		return -1, fault.New(fault.Transient, "%s sent no exit code", d.opts.Dialect.Name)
	}
	return int(code), nil
}

// notRunning turns LXD's refusal to enter an instance into fault.NotReady, so
// that the caller tries again.
func notRunning(err error) error {
	if fault.Is(err, fault.Invalid) {
		return fault.New(fault.NotReady, "%w", err)
	}
	return err
}

// pipe connects the websockets of an operation to the request's streams. It
// returns when the outputs have ended. If ctx ends before that, it asks LXD to
// kill the command and then returns.
func (d *Driver) pipe(ctx context.Context, op api.Operation, req containerbroker.ExecRequest) error {
	socketCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	sockets := d.open(socketCtx, 0)
	conns := map[string]*websocket.Conn{}
	for _, fd := range []string{api.SecretNameControl, "0", "1", "2"} {
		secret, ok := secretOf(op, fd)
		if !ok {
			continue
		}
		conn, release, err := sockets.websocket(socketPath(op, secret))
		if err != nil {
			return err
		}
		defer release()
		conns[fd] = conn
	}
	control := conns[api.SecretNameControl]
	if control == nil || conns["0"] == nil || !req.Terminal && (conns["1"] == nil || conns["2"] == nil) {
		return fault.New(fault.Transient, "%s gave no channels for the command", d.opts.Dialect.Name)
	}
	go drain(control)
	running, ended := context.WithCancel(ctx)
	defer ended()
	go func() { // only this goroutine writes to control
		d.resize(running, control, req.Resize)
		if ctx.Err() != nil {
			d.steer(control, api.InstanceExecControl{Command: "signal", Signal: int(syscall.SIGKILL)})
			cancel()
		}
	}()
	if req.Terminal {
		go typeInto(conns["0"], req.Stdin)
		return cut(ctx, <-ws.MirrorWrite(conns["0"], writerOr(req.Stdout)))
	}
	stdin := req.Stdin
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	go drain(conns["0"]) // answers the server's pings
	ws.MirrorRead(conns["0"], stdin)
	stdout := ws.MirrorWrite(conns["1"], writerOr(req.Stdout))
	stderr := ws.MirrorWrite(conns["2"], writerOr(req.Stderr))
	return cut(ctx, errors.Join(<-stdout, <-stderr))
}

// resize sends the terminal's new sizes to LXD until ctx ends.
func (d *Driver) resize(ctx context.Context, control *websocket.Conn, sizes <-chan containerbroker.WindowSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			d.steer(control, api.InstanceExecControl{Command: "window-resize", Args: map[string]string{
				"width": strconv.Itoa(size.Width), "height": strconv.Itoa(size.Height),
			}})
		}
	}
}

// steer sends a command on a control channel. It ignores errors, because a
// broken connection also ends the other channels.
func (d *Driver) steer(control *websocket.Conn, command api.InstanceExecControl) {
	_ = control.SetWriteDeadline(time.Now().Add(d.opts.RequestTimeout))
	_ = control.WriteJSON(command)
}

// typeInto copies the input to a terminal and types Ctrl-D at its end. If the
// stream itself ended, LXD would close the whole terminal and drop the
// command's remaining output.
func typeInto(conn *websocket.Conn, input io.Reader) {
	if input == nil {
		return
	}
	w := ws.NewWrapper(conn)
	if _, err := io.Copy(w, input); err == nil {
		_, _ = w.Write([]byte{4})
	}
}

// cut returns an error if an output ended early.
func cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fault.New(fault.Transient, "its output was cut short: %w", err)
	}
	return nil
}

func socketPath(op api.Operation, secret string) string {
	return "/1.0/operations/" + url.PathEscape(op.ID) + "/websocket?secret=" + url.QueryEscape(secret)
}

func drain(conn *websocket.Conn) {
	for {
		if _, _, err := conn.NextReader(); err != nil {
			return
		}
	}
}

func secretOf(op api.Operation, fd string) (string, bool) {
	fds, _ := op.Metadata["fds"].(map[string]any)
	secret, ok := fds[fd].(string)
	return secret, ok
}

func writerOr(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// Console implements containerbroker.GuestAccess. LXD 5.0 accepts a size but
// does not pass it on to the container's console, so that the size inside is
// always 0 by 0.
func (d *Driver) Console(ctx context.Context, name string, conn io.ReadWriter) error {
	return fault.Explain(d.console(ctx, name, conn), "cannot open the console of instance %q", name)
}

func (d *Driver) console(ctx context.Context, name string, conn io.ReadWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := d.open(ctx, d.opts.RequestTimeout)
	op, err := c.start(http.MethodPost, instancePath(name)+"/console", api.InstanceConsolePost{Type: "console", Width: 80, Height: 24}, "")
	if err != nil {
		return notRunning(err)
	}
	conns := map[string]*websocket.Conn{}
	for _, fd := range []string{"0", api.SecretNameControl} {
		secret, ok := secretOf(op, fd)
		if !ok {
			return fault.New(fault.Transient, "%s gave no channel for it", d.opts.Dialect.Name)
		}
		socket, release, err := c.websocket(socketPath(op, secret))
		if err != nil {
			return err
		}
		defer release()
		conns[fd] = socket
	}
	go drain(conns[api.SecretNameControl])
	var detach sync.Once
	leave := func() {
		detach.Do(func() {
			message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
			_ = conns[api.SecretNameControl].WriteMessage(websocket.CloseMessage, message)
			cancel()
		})
	}
	input := ws.MirrorRead(conns["0"], conn)
	output := ws.MirrorWrite(conns["0"], conn)
	select {
	case <-input: // the user left
		leave()
		<-output
	case <-output: // the instance ended
	case <-ctx.Done():
		leave()
		<-output
	}
	return nil
}

// Log implements containerbroker.GuestAccess.
func (d *Driver) Log(ctx context.Context, name string) (io.ReadCloser, error) {
	body, err := d.file(ctx, instancePath(name)+"/console")
	if status, isStatus := api.StatusErrorMatch(err); isStatus && (status == http.StatusNotFound || status == http.StatusInternalServerError) {
		// LXD also gives this answer if the console's buffer or file is empty.
		c := d.open(ctx, d.opts.RequestTimeout)
		if _, lookErr := d.read(c, name); lookErr == nil {
			return io.NopCloser(strings.NewReader("")), nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the console log of instance %q: %w", name, err)
	}
	return body, nil
}

// LogDrains implements containerbroker.LogDrainer. LXD reads a running
// instance's console from liblxc's ring buffer, and reading empties the buffer.
func (d *Driver) LogDrains() {}

// file returns the content at a path for which LXD sends raw content instead of
// JSON. The caller must close it.
func (d *Driver) file(ctx context.Context, path string) (io.ReadCloser, error) {
	c := d.open(ctx, 0)
	resp, err := c.lxd.Do(http.MethodGet, path, nil, http.NoBody)
	if err != nil {
		return nil, c.classify(err)
	}
	if resp.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
		_ = resp.Body.Close()
		var answer api.Response
		if json.Unmarshal(message, &answer) != nil || answer.Error == "" {
			answer.Error = c.dialect.Name + " answered " + resp.Status
		}
		return nil, c.classify(api.StatusErrorf(resp.StatusCode, "%s", clean(answer.Error, maxMessage)))
	}
	return resp.Body, nil
}
