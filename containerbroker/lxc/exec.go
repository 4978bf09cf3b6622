package lxc

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// guestEnv is the environment of a command in a guest.
var guestEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", "LANG=C.UTF-8",
}

// Exec implements containerbroker.GuestAccess. If ctx ends before the command,
// Exec kills the command. A Stdin whose Read never returns leaks one goroutine.
func (d *Driver) Exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	code, err := d.exec(ctx, name, req)
	return code, fault.Explain(err, "cannot run a command in instance %q", name)
}

func (d *Driver) exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	if len(req.Command) == 0 {
		return -1, fault.New(fault.Invalid, "the command is empty")
	}
	if err := d.enterable(ctx, name); err != nil {
		return -1, err
	}
	// lxc-attach says only in its log why it cannot run a command. The log is in
	// memory, so that none is left on the host if this process is killed.
	memory, err := unix.MemfdCreate("lxc-attach.log", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot make a log for lxc-attach: %w", err)
	}
	log := os.NewFile(uintptr(memory), "lxc-attach.log")
	defer func() { _ = log.Close() }()
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), memory)
	args := []string{"-P", d.opts.Path, "-n", name, "-q", "-o", path, "--clear-env"}
	for _, variable := range guestEnv {
		key, _, _ := strings.Cut(variable, "=")
		if _, set := req.Env[key]; !set {
			args = append(args, "-v", variable)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(req.Env)) {
		args = append(args, "-v", key+"="+req.Env[key])
	}
	args = append(append(args, "--"), req.Command...)
	program := run.Attached{Path: paths.LXCAttach, Args: args, Dir: "/"}
	var code int
	if req.Terminal {
		code, err = d.onTerminal(ctx, program, req)
	} else {
		code, err = d.onPipes(ctx, program, req)
	}
	if err != nil {
		return -1, err
	}
	return code, d.attachFailed(ctx, name, code, log, req)
}

// attachFailed tells a command that could not be run from one that ended with
// the same exit code, by lxc-attach's log.
func (d *Driver) attachFailed(ctx context.Context, name string, code int, log io.ReaderAt, req containerbroker.ExecRequest) error {
	if code == 0 {
		return nil
	}
	text, _ := io.ReadAll(io.NewSectionReader(log, 0, maxLog))
	if len(text) == 0 {
		return nil
	}
	if code != containerbroker.ExitNotExecutable && code != containerbroker.ExitNotFound {
		if err := d.enterable(ctx, name); err != nil {
			return fault.New(fault.Transient, "the instance ended when the command was to run")
		}
		return nil
	}
	out := req.Stderr
	if req.Terminal {
		out = req.Stdout
	}
	if out != nil {
		_, _ = fmt.Fprintf(out, "%s: %s\n", oneline.Clean(req.Command[0], 256), firstError(text))
	}
	return nil
}

// enterable fails if no command can run in an instance. lxc-attach would hang in
// a frozen one.
func (d *Driver) enterable(ctx context.Context, name string) error {
	e, err := d.readEntry(name)
	if err != nil {
		return err
	}
	status, err := d.look(ctx, e)
	if err == nil && status != containerbroker.StatusRunning {
		err = fault.New(fault.NotReady, "it is %s", status)
	}
	return err
}
