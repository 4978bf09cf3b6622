package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Attached is a program whose streams are files of the caller, e.g. a terminal.
type Attached struct {
	// Path is absolute. The environment is that of CleanEnv.
	Path string
	Args []string
	Dir  string
	// Stdin, Stdout and Stderr are /dev/null if they are nil.
	Stdin, Stdout, Stderr *os.File
}

// Attach runs a program and returns its exit code, which is 128 plus the number
// of the signal that ended it. If ctx ends first, Attach kills the program and
// all processes that it started, and returns ctx's error.
func (Host) Attach(ctx context.Context, a Attached) (int, error) {
	name := filepath.Base(a.Path)
	if !filepath.IsAbs(a.Path) {
		return -1, fmt.Errorf("cannot run %q: the path is not absolute", a.Path)
	}
	if err := ctx.Err(); err != nil {
		return -1, fmt.Errorf("cannot run %s: %w", name, err)
	}
	cmd := exec.Command(a.Path, a.Args...) //nolint:gosec // this package is the exec seam: absolute path, no shell
	cmd.Env, cmd.Dir = CleanEnv(), a.Dir
	if a.Stdin != nil {
		cmd.Stdin = a.Stdin
	}
	if a.Stdout != nil {
		cmd.Stdout = a.Stdout
	}
	if a.Stderr != nil {
		cmd.Stderr = a.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return -1, fmt.Errorf("cannot run %s: %w", name, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	var err error
	select {
	case err = <-waited:
	case <-ctx.Done():
		killTree(cmd.Process.Pid)
		<-waited
		return -1, fmt.Errorf("cannot run %s: stopped: %w", name, ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return -1, fmt.Errorf("cannot run %s: %w", name, err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// killTree kills a process that the caller has not waited for, and the processes
// below it. It stops each before it looks for its children, so that none escapes.
func killTree(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, child := range children(pid) {
		killTree(child)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func children(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}
