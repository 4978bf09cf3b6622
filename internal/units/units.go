// Package units runs commands as transient systemd units. A unit has the
// privileges that its kind of work needs, e.g. the privileges for a package's
// scripts. So the agent's own unit does not need these privileges.
//
// A unit executes `hostlerd internal unit`, which gets the command over a
// socket that only the agent and the unit have. So no argument, variable or
// input of the command is among the unit's properties, which every user of the
// host can read.
package units

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/pause"
	"hostler/internal/run"
)

// Runner runs commands of a kind, each as a unit.
type Runner struct {
	kind   Kind
	system system
	log    *slog.Logger
}

var (
	_ run.Runner  = (*Runner)(nil)
	_ run.Awaiter = (*Runner)(nil)
	_ run.Ender   = (*Runner)(nil)
)

// system is the part of systemd that a Runner uses.
type system interface {
	// Start starts a transient unit and returns when its program executes. The
	// error is errExists while a unit with this name exists.
	Start(ctx context.Context, unit string, properties []dbus.Property) error
	// Loaded returns the units of a job that systemd knows, keyed by name. The
	// value is true if the unit runs.
	Loaded(ctx context.Context, unit string) (map[string]bool, error)
	// Main returns the id of the unit's main process, or 0 if it has ended.
	Main(ctx context.Context, unit string) (int, error)
	// UnitOf returns the unit of a process, or "" if it has none.
	UnitOf(ctx context.Context, pid int) (string, error)
	// Stop ends a unit and returns when it has ended.
	Stop(ctx context.Context, unit string) error
}

// errExists means that a unit with the wanted name exists.
var errExists = errors.New("a unit of this name exists")

const (
	// answerWithin bounds the wait for an answer of systemd. systemd answers at
	// once, except while it reads its unit files again.
	answerWithin = 30 * time.Second
	// endWithin bounds the wait for the end of a job's former unit.
	endWithin = 30 * time.Second
	// collectWithin is the time in which systemd removes a unit that has ended,
	// unless the unit has left processes behind.
	collectWithin = time.Second
	// startPoll is the interval between attempts to start a unit whose name is
	// taken. awaitPoll is the interval between checks for the end of an earlier
	// agent's unit. sayEvery is the interval between progress messages.
	startPoll = 50 * time.Millisecond
	awaitPoll = 500 * time.Millisecond
	sayEvery  = 5 * time.Second
)

// New returns a Runner for commands of the kind.
func New(kind Kind, log *slog.Logger) *Runner {
	return &Runner{kind: kind, system: systemd{}, log: log}
}

// Run implements run.Runner. The error is fault.Transient if the unit did not
// start or was ended, so that the command has no result. If the agent is killed
// meanwhile, the unit ends itself, except that the unit of a NoKill command
// continues until the command ends.
func (r *Runner) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if err := ctx.Err(); err != nil {
		return run.Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	unit := r.kind.unit(c.Job)
	if c.Detach != "" {
		return r.daemon(ctx, unit, c)
	}
	near, unit, err := r.open(ctx, unit, c)
	if err != nil {
		return run.Result{}, err
	}
	defer func() { _ = near.Close() }()
	return follow(ctx, near, unit, c)
}

// Attach runs a program whose streams are files, as run.Host does. The unit gets
// the files over its socket.
func (r *Runner) Attach(ctx context.Context, a run.Attached) (int, error) {
	c := run.Command{Path: a.Path, Args: a.Args, Dir: a.Dir}
	if err := ctx.Err(); err != nil {
		return -1, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	near, unit, err := r.open(ctx, r.kind.unit(""), c)
	if err != nil {
		return -1, err
	}
	defer func() { _ = near.Close() }()
	return attach(ctx, near, unit, a)
}

// open starts a unit that waits for its command, and returns the agent's end of
// the connection with it and its name.
func (r *Runner) open(ctx context.Context, unit string, c run.Command) (*net.UnixConn, string, error) {
	near, far, err := socketPair()
	if err != nil {
		return nil, "", fault.New(fault.Transient, "cannot run %s: %w", c.Name(), err)
	}
	properties := append(r.kind.all(c),
		dbus.PropExecStart([]string{paths.Hostlerd, "internal", "unit"}, true),
		property("StandardInputFileDescriptor", godbus.UnixFD(far.Fd())),
		property("StandardOutput", "journal"), property("StandardError", "journal"), property("SyslogIdentifier", c.Name()))
	unit, err = r.start(ctx, unit, properties)
	_ = far.Close()
	if err != nil {
		_ = near.Close()
		return nil, "", fault.New(fault.Transient, "cannot run %s: %w", c.Name(), err)
	}
	return near, unit, nil
}

// naming is a lock on the choice of unit names. It holds a value while a unit's
// name is chosen and taken.
var naming = make(chan struct{}, 1)

// start starts a unit and returns its name. It waits for the end of the job's
// former unit, e.g. of the last command or of an agent that was killed. A unit
// that has left processes behind keeps its name until these processes end. They
// may be a package's daemon and must not be stopped, so the new unit gets
// another name.
func (r *Runner) start(ctx context.Context, unit string, properties []dbus.Property) (string, error) {
	begun, ended := time.Now(), time.Time{}
	for {
		another := !ended.IsZero() && time.Since(ended) >= collectWithin
		name, err := answer(ctx, func(ctx context.Context) (string, error) { return r.attempt(ctx, unit, properties, another) })
		switch {
		case err == nil:
			return name, nil
		case errors.Is(err, errRuns):
			ended = time.Time{}
		case !errors.Is(err, errExists):
			return "", fmt.Errorf("cannot start %s: %w", unit, err)
		case ended.IsZero():
			ended = time.Now()
		}
		if time.Since(begun) >= endWithin {
			return "", fmt.Errorf("the former %s has not ended within %s; see `systemctl status '%s*'`", unit, endWithin, stem(unit))
		}
		if err := pause.For(ctx, startPoll); err != nil {
			return "", fmt.Errorf("the former %s has not ended: %w", unit, err)
		}
	}
}

// errRuns means that a unit of the job runs.
var errRuns = errors.New("a unit of this job runs")

// attempt starts a unit and returns its name. The name is unit. If this name is
// taken and another is set, the name is the first free alternative.
func (r *Runner) attempt(ctx context.Context, unit string, properties []dbus.Property, another bool) (string, error) {
	select {
	case naming <- struct{}{}:
		defer func() { <-naming }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	loaded, err := r.system.Loaded(ctx, unit)
	if err != nil {
		return "", err
	}
	if running(loaded) != "" {
		return "", errRuns
	}
	name := unit
	for n := 2; ; n++ {
		if _, taken := loaded[name]; !taken {
			break
		}
		if !another {
			return "", errExists
		}
		name = numbered(unit, n)
	}
	err = r.system.Start(ctx, name, properties)
	if err == nil && name != unit {
		r.log.Info("A unit got another name, since processes of a former unit still run.", "unit", name)
	}
	return name, err
}

// running returns the name of a unit that runs, or "".
func running(loaded map[string]bool) string {
	for name, runs := range loaded {
		if runs {
			return name
		}
	}
	return ""
}

// answer calls question, which asks systemd, with a time limit of answerWithin.
func answer[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	got, err := question(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return got, fault.New(fault.Transient, "systemd has not answered within %s", answerWithin)
	}
	return got, err
}

// daemon starts a program that outlives this process. The program needs nothing
// from the agent, so its unit executes the program directly.
func (r *Runner) daemon(ctx context.Context, unit string, c run.Command) (run.Result, error) {
	properties := append(r.kind.all(c),
		dbus.PropExecStart(append([]string{c.Path}, c.Args...), true),
		property("Environment", append(run.CleanEnv(), c.Env...)),
		property("StandardOutputFileToAppend", c.Detach), property("StandardErrorFileToAppend", c.Detach))
	unit, err := r.start(ctx, unit, properties)
	if err != nil {
		return run.Result{}, fault.New(fault.Transient, "cannot run %s: %w", c.Name(), err)
	}
	pid, err := answer(ctx, func(ctx context.Context) (int, error) { return r.system.Main(ctx, unit) })
	if err != nil {
		return run.Result{}, fault.New(fault.Transient, "cannot run %s as %s: %w", c.Name(), unit, err)
	}
	return run.Result{PID: pid}, nil
}

// Await implements run.Awaiter.
func (r *Runner) Await(ctx context.Context, progress func(string)) error {
	unit, start, told := r.kind.unit(""), time.Now(), time.Time{}
	for {
		loaded, err := answer(ctx, func(ctx context.Context) (map[string]bool, error) { return r.system.Loaded(ctx, unit) })
		if err != nil {
			return fmt.Errorf("cannot look for %s: %w", unit, err)
		}
		runs := running(loaded)
		if runs == "" {
			return nil
		}
		if time.Since(told) >= sayEvery {
			progress("waiting for " + runs + ", which an earlier agent started, for " + strconv.Itoa(int(time.Since(start).Seconds())) + "s")
			told = time.Now()
		}
		if err := pause.For(ctx, awaitPoll); err != nil {
			return fmt.Errorf("cannot wait for %s: %w", runs, err)
		}
	}
}

// End implements run.Ender. A process that an earlier version of the agent
// started without a unit gets a scope, which systemd then ends. If an earlier
// agent was killed before it ended the scope, the scope exists already and End
// only ends it.
func (r *Runner) End(ctx context.Context, pid int) error {
	unit, err := answer(ctx, func(ctx context.Context) (string, error) { return r.system.UnitOf(ctx, pid) })
	if err != nil {
		return fmt.Errorf("cannot end process %d: %w", pid, err)
	}
	if unit == "" {
		return nil
	}
	if !strings.HasPrefix(unit, prefix+DNSMasq.name+"-") {
		unit = fmt.Sprintf("%send-%d.scope", prefix, pid)
		_, err := answer(ctx, func(ctx context.Context) (any, error) { return nil, r.system.Start(ctx, unit, scopeOf(pid)) })
		if err != nil && !errors.Is(err, errExists) {
			return fmt.Errorf("cannot end process %d: %w", pid, err)
		}
	}
	_, err = answer(ctx, func(ctx context.Context) (any, error) { return nil, r.system.Stop(ctx, unit) })
	return fault.Explain(err, "cannot end %s", unit)
}

// socketPair returns the agent's end of its connection with a unit, and the
// unit's end.
func socketPair() (near *net.UnixConn, far *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	far = os.NewFile(uintptr(pair[1]), "unit")
	mine := os.NewFile(uintptr(pair[0]), "agent")
	near, err = connOf(mine)
	_ = mine.Close()
	if err != nil {
		_ = far.Close()
	}
	return near, far, err
}

// connOf returns a copy of a socket as a connection.
func connOf(file *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is no local socket", file.Name()), c.Close())
	}
	return conn, nil
}

// unanswered returns the error for a unit that ended without a report.
func unanswered(unit string, c run.Command, err error) error {
	return fault.New(fault.Transient, "cannot run %s: %s was ended: %v; see `journalctl -u %s`", c.Name(), unit, err, unit)
}
