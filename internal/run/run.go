// Package run is the only package of hostler that starts other programs. It
// never uses a shell. A program has an absolute path, gets its arguments one by
// one, and has a clean environment.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/internal/paths"
)

// defaultLimit is the number of bytes of stdout, and of stderr, in a Result if
// the command sets no limit.
const defaultLimit = 1 << 20

// Command is a program to run. The zero value of every field but Path is
// usable.
type Command struct {
	// Path is absolute.
	Path string
	Args []string
	// Env is added to the clean environment (see CleanEnv).
	Env []string
	Dir string
	// Stdin is the standard input. If it is nil, the input is empty.
	Stdin io.Reader
	// OnLine gets each line of stdout and stderr, without its newline, while
	// the program runs. Calls never overlap.
	OnLine func(line string)
	// OnStatus, when set, gets each line that the program writes to file
	// descriptor 3. Calls never overlap with each other or with OnLine.
	OnStatus func(line string)
	// Limit is the number of bytes of stdout and of stderr that the Result holds.
	// If there are more, it holds the last bytes. 0 means defaultLimit.
	Limit int64
	// Timeout is the time after which the command ends, as at the end of the
	// context; 0 means no timeout.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL to the process group when
	// the context ends; 0 means SIGKILL at once.
	Grace time.Duration
	// NoKill is for programs that must not be killed, such as a package manager
	// at work. At the end of the context only the program itself, not its group,
	// gets a SIGINT, and Run waits for its end. The program also continues if
	// this process is killed.
	NoKill bool
	// Users, when set, starts the program in its own user namespace.
	Users *UserNamespace
	// Unprivileged starts the program as a user and group that own nothing
	// (65533), without supplementary groups, in its own IPC namespace, and kills
	// it when this process ends. If this process is not root, Unprivileged has
	// only the last effect.
	Unprivileged bool
	// OnStart, when set, gets the process id of the running program.
	OnStart func(pid int)
	// Job names the object that the command works on, e.g. a bridge. A Runner
	// that runs commands as units runs at most one unit of a job at a time.
	Job string
	// Detach, when set, starts the program as a daemon in its own session. Detach
	// is the path of the file to which both outputs are appended. Run returns
	// after the start. The daemon outlives the context and this process.
	Detach string
}

// UserNamespace maps the ids of a user namespace, starting with 0, to users and
// groups of this host. Only root may start a program in such a namespace.
type UserNamespace struct {
	FirstUser, Users   int
	FirstGroup, Groups int
	// Root starts the program as the namespace's root, i.e. as FirstUser and
	// FirstGroup of this host without supplementary groups. Otherwise the
	// program has the caller's ids, which the namespace does not map, and no
	// capability.
	Root bool
	// Mounts gives the namespace its own copy of the caller's mounts.
	Mounts bool
}

// Hold starts a program in the namespace, calls f with its process id and ends
// it. A file of /proc/PID/ns that f opens keeps its namespace alive.
func (n UserNamespace) Hold(ctx context.Context, runner Runner, f func(pid int) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	var opened error
	// cat waits for the end of its input.
	_, err = runner.Run(ctx, Command{Path: paths.Cat, Stdin: r, Users: &n, OnStart: func(pid int) {
		opened = f(pid)
		_ = w.Close()
	}})
	return errors.Join(err, opened)
}

// Name returns the program's name without its folder.
func (c Command) Name() string { return filepath.Base(c.Path) }

// String returns the command line, for logs of commands without secrets.
func (c Command) String() string {
	return strings.Join(append([]string{c.Path}, c.Args...), " ")
}

// Result is the result of a command.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int
	// PID is set for detached commands.
	PID int
}

// Runner runs commands. The error for an exit code other than 0 is an
// *ExitError. If the context ends first, the error wraps the context's error.
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// Awaiter is a Runner whose NoKill commands outlive an agent that was killed.
type Awaiter interface {
	// Await returns when no command of an earlier agent runs any more.
	Await(ctx context.Context, progress func(string)) error
}

// Ender is a Runner that can end a process of any user.
type Ender interface {
	// End ends a process, its children and the unit that Detach made for it. It
	// succeeds if the process is missing.
	End(ctx context.Context, pid int) error
}

// ExitError says that a program failed.
type ExitError struct {
	Name string
	// Code is -1 when a signal ended the program.
	Code   int
	Signal string
	// Tail holds the last lines of stderr, or of stdout if stderr is empty.
	Tail string
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != "" {
		how = "ended by signal " + e.Signal
	}
	if e.Tail != "" {
		how += ": " + e.Tail
	}
	return fmt.Sprintf("cannot run %s: %s", e.Name, how)
}

// ExitCode returns the exit code in err's chain, or false if there is none.
func ExitCode(err error) (int, bool) {
	var e *ExitError
	if errors.As(err, &e) {
		return e.Code, true
	}
	return 0, false
}

// CleanEnv returns the environment of every program. It contains a fixed search
// path, the locale C.UTF-8 and root's home, and no variable of the agent.
func CleanEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
	}
}

// The bounds of the output that an error repeats.
const (
	tailLines = 6
	tailBytes = 1024
)

// Tail returns the last non-blank lines of output.
func Tail(output []byte) string {
	var kept []string
	for line := range strings.Lines(strings.ToValidUTF8(string(output), "?")) {
		if line = strings.TrimRight(line, " \t\r\n"); line != "" {
			kept = append(kept, line)
		}
	}
	if len(kept) > tailLines {
		kept = kept[len(kept)-tailLines:]
	}
	text := strings.Join(kept, "\n")
	if len(text) > tailBytes {
		text = strings.ToValidUTF8(text[len(text)-tailBytes:], "")
	}
	return text
}
