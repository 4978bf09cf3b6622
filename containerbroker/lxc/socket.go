package lxc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/pause"
)

// The commands of a monitor's socket, from liblxc's commands.h. The numbers are
// the same in all releases since 4.0.
const (
	cmdTTY         = 0
	cmdStop        = 2
	cmdState       = 3
	cmdInitPID     = 4
	cmdLimitCgroup = 19
)

var (
	errNoMonitor = errors.New("no monitor listens")
	errNoAnswer  = errors.New("its monitor does not answer")
)

// connect opens a connection to the monitor of an instance. It fails with
// errNoMonitor if the instance is stopped.
func (d *Driver) connect(ctx context.Context, name string) (*net.UnixConn, error) {
	c, err := d.dial(ctx, socketName(d.opts.Path, name))
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, errNoMonitor
	}
	return c, err
}

func dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", "@"+socket)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// ask sends a command and reads its answer; it fails with errNoAnswer after
// AnswerTimeout. A monitor closes its connections when its guest reboots, and goes
// on: if a connection ends without an answer, ask asks again as long as a monitor
// listens.
func (d *Driver) ask(ctx context.Context, name string, command int, data []byte) (answer, error) {
	for deadline := time.Now().Add(d.opts.AnswerTimeout); ; {
		c, err := d.connect(ctx, name)
		if err != nil {
			return answer{}, err
		}
		a, err := d.askOn(c, command, data)
		_ = c.Close()
		if !errors.Is(err, errNoMonitor) {
			return a, err
		}
		if time.Now().After(deadline) {
			return a, errNoAnswer
		}
		if err := pause.For(ctx, askAgain); err != nil {
			return a, err
		}
	}
}

// askAgain is the interval at which ask connects again.
const askAgain = 5 * time.Millisecond

// askOn is ask on an open connection. The request is one message, because a
// monitor that gets a part of a request waits for the rest.
func (d *Driver) askOn(c *net.UnixConn, command int, data []byte) (answer, error) {
	if err := c.SetDeadline(time.Now().Add(d.opts.AnswerTimeout)); err != nil {
		return answer{}, err
	}
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	who := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
	if _, _, err := c.WriteMsgUnix(request(command, data), who, nil); err != nil {
		return answer{}, ended(err)
	}
	frame, rights := make([]byte, 16), make([]byte, 256)
	n, oob, _, _, err := c.ReadMsgUnix(frame, rights)
	if err != nil {
		return answer{}, ended(err)
	}
	a, size, err := parseFrame(frame[:n])
	a.file = fileOf(rights[:oob])
	if err == nil && size > 0 {
		a.data = make([]byte, size)
		_, err = io.ReadFull(c, a.data)
	}
	if err != nil && a.file != nil {
		_ = a.file.Close()
		a.file = nil
	}
	return a, ended(err)
}

// ended turns the end of a connection into errNoMonitor, and the end of the time
// into errNoAnswer.
func ended(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errNoAnswer
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return errNoMonitor
	}
	return err
}
