package lxc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// BreakNextList makes the next listing read half of the table of sockets, which
// ends within a line.
func (d *Driver) BreakNextList() {
	whole := d.table
	var broken atomic.Bool
	d.table = func() ([]byte, error) {
		text, err := whole()
		if !broken.Swap(true) {
			text = bytes.TrimSuffix(text[:len(text)/2], []byte("\n"))
		}
		return text, err
	}
}

// LoseNextCreate makes the next creation do its work and then fail.
func (d *Driver) LoseNextCreate() {
	whole := d.rename
	var lost atomic.Bool
	d.rename = func(from, to string) error {
		err := whole(from, to)
		if err == nil && !lost.Swap(true) {
			err = errors.New("the answer is lost")
		}
		return err
	}
}

// Commands are the commands of a monitor's socket whose answers LoseAnswer can
// lose.
var Commands = map[string]int{"stop": cmdStop, "state": cmdState, "init's process": cmdInitPID, "cgroup": cmdLimitCgroup}

// LoseAnswer makes the monitor carry out the next request of a command, and its
// answer never come. If cut is true, the connection ends instead. lost reports
// whether such a request was made.
func (d *Driver) LoseAnswer(command int, cut bool) (lost func() bool) {
	var done atomic.Bool
	d.dial = func(ctx context.Context, socket string) (*net.UnixConn, error) {
		monitor, err := dial(ctx, socket)
		if err != nil {
			return nil, err
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		near, front := unixConn(pair[0]), unixConn(pair[1])
		var swallow atomic.Bool
		go relay(front, monitor, func(request []byte) bool {
			if len(request) >= 4 && int(binary.NativeEndian.Uint32(request)) == command && !done.Swap(true) {
				swallow.Store(true)
			}
			return true
		})
		go relay(monitor, front, func([]byte) bool {
			if swallow.Load() && cut {
				_ = front.Close()
			}
			return !swallow.Load()
		})
		return near, nil
	}
	return done.Load
}

func unixConn(fd int) *net.UnixConn {
	file := os.NewFile(uintptr(fd), "pair")
	defer func() { _ = file.Close() }()
	c, err := net.FileConn(file)
	if err != nil {
		panic(err)
	}
	return c.(*net.UnixConn)
}

// relay copies messages as long as pass returns true, and drops them otherwise.
// The end of one side ends the other.
func relay(from, to *net.UnixConn, pass func([]byte) bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	data, rights := make([]byte, 4096), make([]byte, 256)
	for {
		n, oob, _, _, err := from.ReadMsgUnix(data, rights)
		if err != nil || n == 0 {
			return
		}
		if !pass(data[:n]) {
			continue
		}
		who := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
		if _, _, err := to.WriteMsgUnix(data[:n], append(who, rights[:oob]...), nil); err != nil {
			return
		}
	}
}

// ServeLosingStep is ServeStep whose creation does its work and then fails.
func ServeLosingStep(ctx context.Context, in io.Reader, out io.Writer) error {
	return serveStep(ctx, in, out, (*Driver).LoseNextCreate)
}

// BeforeRename calls f when a creation has made all files of an instance.
func (d *Driver) BeforeRename(f func()) {
	whole := d.rename
	d.rename = func(from, to string) error {
		f()
		return whole(from, to)
	}
}
