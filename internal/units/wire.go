package units

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// order is the agent's first message, which contains the command to run.
type order struct {
	Path           string
	Args, Env      []string
	Dir            string
	Input          []byte
	Limit          int64
	Timeout, Grace time.Duration
	NoKill         bool
	Users          *run.UserNamespace
	Unprivileged   bool
	// Lines, Status and Start ask for reports of output lines, status lines and
	// the start.
	Lines, Status, Start bool
	// File is true if the input is the file that came with the message.
	File bool
	// Attached is true if the three files that came with the message are the
	// command's streams. The other fields below Dir then have no effect.
	Attached bool
}

// report is a message of the unit. The last report has an End.
type report struct {
	PID    int    `json:",omitempty"`
	Line   []byte `json:",omitempty"`
	Status []byte `json:",omitempty"`
	End    *end   `json:",omitempty"`
	Kind   kindOfReport
}

type kindOfReport int

const (
	started kindOfReport = iota
	lineOut
	statusOut
	ended
)

// end is the result of a command.
type end struct {
	Stdout, Stderr []byte
	ExitCode       int
	Exit           *run.ExitError `json:",omitempty"`
	// Problem is the text of an error that is not an ExitError. Cause is the
	// error in its chain that callers look for.
	Problem string  `json:",omitempty"`
	Cause   causeOf `json:",omitempty"`
}

type causeOf int

const (
	other causeOf = iota
	canceled
	expired
	absent
)

// causes are the errors that callers of a Runner look for.
var causes = map[causeOf]error{canceled: context.Canceled, expired: context.DeadlineExceeded, absent: os.ErrNotExist}

// follow sends the command to its unit, passes the unit's reports to the
// command's callbacks, and returns the result.
func follow(ctx context.Context, socket *net.UnixConn, unit string, c run.Command) (run.Result, error) {
	o := order{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, Limit: c.Limit, Timeout: c.Timeout, Grace: c.Grace,
		NoKill: c.NoKill, Users: c.Users, Unprivileged: c.Unprivileged,
		Lines: c.OnLine != nil, Status: c.OnStatus != nil, Start: c.OnStart != nil,
	}
	file, _ := c.Stdin.(*os.File)
	if o.File = file != nil; c.Stdin != nil && !o.File {
		var err error
		if o.Input, err = io.ReadAll(c.Stdin); err != nil {
			return run.Result{}, fmt.Errorf("cannot run %s: %w", c.Name(), err)
		}
	}
	var files []*os.File
	if file != nil {
		files = []*os.File{file}
	}
	if err := send(socket, o, files); err != nil {
		return run.Result{}, unanswered(unit, c, err)
	}
	return await(ctx, socket, unit, c)
}

// await passes the unit's reports to the command's callbacks until the command
// has ended.
func await(ctx context.Context, socket *net.UnixConn, unit string, c run.Command) (run.Result, error) {
	// After the order, any message to the unit means that the context has ended.
	stop := context.AfterFunc(ctx, func() { _, _ = socket.Write([]byte("{}\n")) })
	defer stop()
	for in := json.NewDecoder(socket); ; {
		var r report
		if err := in.Decode(&r); err != nil {
			return run.Result{}, unanswered(unit, c, err)
		}
		switch r.Kind {
		case started:
			c.OnStart(r.PID)
		case lineOut:
			c.OnLine(string(r.Line))
		case statusOut:
			c.OnStatus(string(r.Status))
		case ended:
			return r.End.result(ctx, c)
		}
	}
}

// attach sends a program with its streams to its unit, and returns the program's
// exit code.
func attach(ctx context.Context, socket *net.UnixConn, unit string, a run.Attached) (int, error) {
	c := run.Command{Path: a.Path}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot run %s: %w", c.Name(), err)
	}
	defer func() { _ = null.Close() }()
	streams := []*os.File{cmp.Or(a.Stdin, null), cmp.Or(a.Stdout, null), cmp.Or(a.Stderr, null)}
	if err := send(socket, order{Path: a.Path, Args: a.Args, Dir: a.Dir, Attached: true}, streams); err != nil {
		return -1, unanswered(unit, c, err)
	}
	result, err := await(ctx, socket, unit, c)
	if err != nil {
		return -1, err
	}
	return result.ExitCode, nil
}

func (e *end) result(ctx context.Context, c run.Command) (run.Result, error) {
	result := run.Result{Stdout: e.Stdout, Stderr: e.Stderr, ExitCode: e.ExitCode}
	switch {
	case e.Exit != nil:
		return result, e.Exit
	case e.Problem == "":
		return result, nil
	case e.Cause == canceled && ctx.Err() != nil:
		return result, fmt.Errorf("cannot run %s: stopped: %w", c.Name(), ctx.Err())
	case e.Cause == canceled:
		return result, fault.New(fault.Transient, "cannot run %s: its unit was stopped", c.Name())
	}
	return result, &problem{text: e.Problem, cause: causes[e.Cause]}
}

// problem is an error that a unit reported.
type problem struct {
	text  string
	cause error
}

func (p *problem) Error() string { return p.text }
func (p *problem) Unwrap() error { return p.cause }

// credentials matches the user and password in a URL.
var credentials = regexp.MustCompile(`//[^/\s]*@`)

// Inside is the unit's part. It runs the command that the agent sends over the
// socket in file, and reports to the agent. It also writes the output lines to
// the journal, without the passwords in URLs.
func Inside(ctx context.Context, file *os.File, journal io.Writer) error {
	conn, err := connOf(file)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	o, files, err := receive(conn)
	if err != nil {
		return fmt.Errorf("cannot get a command from the agent: %w", err)
	}
	c := run.Command{
		Path: o.Path, Args: o.Args, Env: o.Env, Dir: o.Dir, Stdin: o.input(files), Limit: o.Limit, Timeout: o.Timeout, Grace: o.Grace,
		NoKill: o.NoKill, Users: o.Users, Unprivileged: o.Unprivileged,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if n, _ := conn.Read(make([]byte, 1)); n > 0 || !o.NoKill {
			cancel() // the agent asks for the end, or the agent is gone
		}
	}()
	var writing sync.Mutex
	tell := func(r report) {
		writing.Lock()
		defer writing.Unlock()
		_ = json.NewEncoder(conn).Encode(r) // an agent that was killed reads nothing
	}
	if o.Lines {
		c.OnLine = func(line string) {
			fmt.Fprintln(journal, credentials.ReplaceAllString(line, "//[…]@"))
			tell(report{Kind: lineOut, Line: []byte(line)})
		}
	}
	if o.Status {
		c.OnStatus = func(line string) { tell(report{Kind: statusOut, Status: []byte(line)}) }
	}
	if o.Start {
		c.OnStart = func(pid int) { tell(report{Kind: started, PID: pid}) }
	}
	var result run.Result
	if o.Attached {
		result.ExitCode, err = run.Host{}.Attach(ctx, run.Attached{
			Path: o.Path, Args: o.Args, Dir: o.Dir, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		})
	} else {
		result, err = run.Host{}.Run(ctx, c)
	}
	e := &end{Stdout: result.Stdout, Stderr: result.Stderr, ExitCode: result.ExitCode}
	if err != nil && !errors.As(err, &e.Exit) {
		e.Problem = err.Error()
		for cause, target := range causes {
			if errors.Is(err, target) {
				e.Cause = cause
			}
		}
	}
	tell(report{Kind: ended, End: e})
	return err
}

// most is the maximum length of an order in bytes.
const most = 16 << 20

// send writes the length of an order and then the order. The message with the
// length also passes the order's files, if any.
func send(socket *net.UnixConn, o order, files []*os.File) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var rights []byte
	var fds []int
	for _, f := range files {
		// Fd would make the file block at once; receive() does that in the unit.
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := socket.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, uint32(len(data))), rights, nil); err != nil {
		return err
	}
	_, err = socket.Write(data)
	return err
}

// receive reads an order with its files.
func receive(socket *net.UnixConn) (o order, files []*os.File, err error) {
	head, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(3*4))
	n, size, _, _, err := socket.ReadMsgUnix(head, rights)
	if err != nil {
		return o, nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if n != len(head) || length > most {
		return o, nil, fmt.Errorf("it sent %x", head[:n])
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(socket, data); err != nil {
		return o, nil, err
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, nil, err
	}
	want := 0
	switch {
	case o.Attached:
		want = 3
	case o.File:
		want = 1
	default:
		return o, nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil || len(messages) != 1 {
		return o, nil, errors.New("it sent no file")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != want {
		return o, nil, fmt.Errorf("it sent %d files instead of %d", len(fds), want)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		// A pipe of the agent's does not block, which programs do not expect.
		if err := unix.SetNonblock(fd, false); err != nil {
			return o, nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), "stream"))
	}
	return o, files, nil
}

// input returns the input of the order's command.
func (o order) input(files []*os.File) io.Reader {
	if o.File {
		return files[0]
	}
	return bytes.NewReader(o.Input)
}
