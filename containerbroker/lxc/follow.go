package lxc

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/pause"
)

// look follows an instance that has a monitor, unless it is followed already.
func (w *watcher) look(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.followed[name] || w.ctx.Err() != nil {
		return
	}
	idle, err := w.d.connect(w.ctx, name)
	if err != nil {
		return
	}
	w.followed[name] = true
	w.wait.Go(func() {
		for err == nil {
			w.follow(name, idle)
			if w.ctx.Err() == nil {
				w.emit(name, "ended")
			}
			// The monitor closes its connections when the guest reboots, too.
			idle, err = w.again(name)
		}
	})
}

// again connects to the monitor of an instance whose connection ended. If there
// is none, the instance is no longer followed.
func (w *watcher) again(name string) (*net.UnixConn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle, err := w.d.connect(w.ctx, name)
	if err != nil {
		delete(w.followed, name)
	}
	return idle, err
}

// follow sends an event when an instance runs, when its init ends, and returns
// at the end of the connection. The init's end comes first, some 30 ms before.
func (w *watcher) follow(name string, idle *net.UnixConn) {
	defer func() { _ = idle.Close() }()
	stop := context.AfterFunc(w.ctx, func() { _ = idle.Close() })
	defer stop()
	gone := make(chan struct{})
	w.wait.Go(func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, idle)
	})
	pid := w.awaitRunning(name, gone)
	if pid == 0 {
		<-gone
		return
	}
	w.watchFreezer(name)
	w.emit(name, "started")
	if init := openProcess(pid); init != nil {
		defer func() { _ = init.Close() }()
		w.wait.Go(func() {
			if processEnded(init) && w.ctx.Err() == nil {
				w.emit(name, "init-ended")
			}
		})
	}
	<-gone
}

// awaitRunning returns the process id of an instance's init once it runs, or 0
// if it never does.
func (w *watcher) awaitRunning(name string, gone <-chan struct{}) int {
	for deadline := time.Now().Add(w.d.opts.StartTimeout); time.Now().Before(deadline); {
		s, err := w.d.stateOf(w.ctx, name)
		if err != nil {
			return 0
		}
		if status := s.status(); status != containerbroker.StatusBusy {
			pid, _ := w.d.pidOf(w.ctx, name)
			return pid
		}
		select {
		case <-gone:
			return 0
		default:
		}
		if pause.For(w.ctx, startLook) != nil {
			return 0
		}
	}
	return 0
}

// openProcess returns a pidfd, or nil if the process is gone.
func openProcess(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// processEnded waits, without blocking a thread, until the process of a pidfd
// has ended. It returns false if the file was closed before.
func processEnded(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	}) == nil
}
