package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Host runs commands on this host.
type Host struct{}

var _ Runner = Host{}

// Run implements Runner.
func (Host) Run(ctx context.Context, c Command) (Result, error) {
	if !filepath.IsAbs(c.Path) {
		return Result{}, fmt.Errorf("cannot run %q: the path is not absolute", c.Path)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	cmd := exec.Command(c.Path, c.Args...) //nolint:gosec // this package is the exec seam: absolute path, no shell
	cmd.Env = append(CleanEnv(), c.Env...)
	cmd.Dir = c.Dir
	if c.Detach != "" {
		return detach(cmd, c)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	cmd.Stdin = c.Stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if n := c.Users; n != nil {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		if n.Mounts {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
		}
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: n.FirstUser, Size: n.Users}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: n.FirstGroup, Size: n.Groups}}
		if n.Root {
			cmd.SysProcAttr.GidMappingsEnableSetgroups = true
			cmd.SysProcAttr.Credential = &syscall.Credential{}
		}
	}
	if c.Unprivileged {
		// Lock the thread, because the kernel sends Pdeathsig when the thread that
		// started the program ends, not when the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		if os.Geteuid() == 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobodyElse, Gid: nobodyElse}
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWIPC
		}
	}
	// WaitDelay bounds only the copying of stdin after the end of the program.
	cmd.WaitDelay = time.Second

	out, err := newOutput(c)
	if err != nil {
		return Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	cmd.Stdout, cmd.Stderr = out.stdout.w, out.stderr.w
	if out.status != nil {
		cmd.ExtraFiles = []*os.File{out.status.w}
	}
	err = cmd.Start()
	out.closeWriters()
	if err != nil {
		out.closeReaders()
		return Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	out.start()
	if c.OnStart != nil {
		c.OnStart(cmd.Process.Pid)
	}

	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	var ended error
	select {
	case err = <-waited:
	case <-ctx.Done():
		ended = ctx.Err()
		err = stop(cmd.Process.Pid, c, waited)
	}
	out.finish()
	result := Result{Stdout: out.stdout.tail.bytes(), Stderr: out.stderr.tail.bytes(), ExitCode: cmd.ProcessState.ExitCode()}
	// A program with exit code 0 has done its work, even if it got a signal to
	// stop.
	if ended != nil && result.ExitCode != 0 {
		return result, fmt.Errorf("cannot run %s: stopped: %w", c.Name(), ended)
	}
	return result, outcome(c, cmd.ProcessState, result, err)
}

// stop ends a running program by the rules of its Command and waits for its
// end.
func stop(pid int, c Command, waited <-chan error) error {
	if c.NoKill {
		// On SIGINT apt-get finishes the running dpkg call, or stops at once during
		// a download. Its children get no signal.
		_ = syscall.Kill(pid, syscall.SIGINT)
		return <-waited
	}
	if c.Grace > 0 {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		timer := time.NewTimer(c.Grace)
		defer timer.Stop()
		select {
		case err := <-waited:
			// Kill the processes of the group that ignored SIGTERM.
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			return err
		case <-timer.C:
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	return <-waited
}

func outcome(c Command, state *os.ProcessState, result Result, err error) error {
	if err == nil || errors.Is(err, exec.ErrWaitDelay) && state.Success() {
		return nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	failure := &ExitError{Name: c.Name(), Code: state.ExitCode(), Tail: Tail(result.Stderr)}
	failure.Tail = cmp.Or(failure.Tail, Tail(result.Stdout))
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		failure.Signal = ws.Signal().String()
	}
	return failure
}

// nobodyElse is the id of a user and of a group that no other process has.
// systemd leaves the ids 65520 to 65533 unused. The user "nobody" (65534) is
// not suitable, because it may run dnsmasq.
const nobodyElse = 65533

// detach starts a daemon in its own session, without a terminal, and with its
// output in a file.
func detach(cmd *exec.Cmd, c Command) (Result, error) {
	log, err := os.OpenFile(c.Detach, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return Result{}, fmt.Errorf("cannot start %s: %w", c.Name(), err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("cannot start %s: %w", c.Name(), err)
	}
	// Wait prevents a zombie if the daemon ends before this process.
	go func() { _ = cmd.Wait() }()
	return Result{PID: cmd.Process.Pid}, nil
}
