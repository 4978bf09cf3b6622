package api

import (
	"fmt"
	"log/slog"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Lasting is a listener on the agent's socket that survives the removal of the
// socket's file: Renew makes the socket again.
type Lasting struct {
	log    *slog.Logger
	path   string
	groups []int

	mu     sync.Mutex
	on     *net.UnixListener
	file   unix.Stat_t
	closed bool
}

// ListenLasting is Listen for a socket that Renew can make again. It logs which
// groups get no access because the filesystem has no access control lists.
func ListenLasting(log *slog.Logger, path string, groups ...int) (*Lasting, error) {
	l := &Lasting{log: log, path: path, groups: groups}
	return l, l.listen()
}

func (l *Lasting) listen() error {
	on, err := listen(l.log, l.path, l.groups)
	if err != nil {
		return err
	}
	if err := unix.Lstat(l.path, &l.file); err != nil {
		_ = on.Close()
		return fmt.Errorf("cannot look at %s: %w", l.path, err)
	}
	l.on = on
	return nil
}

// Renew checks whether the socket's file still exists, and makes it and its
// directory again if not. Open connections stay open. Errors are those of
// Listen, which leave the listener unchanged.
func (l *Lasting) Renew() (renewed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var file unix.Stat_t
	if l.closed || unix.Lstat(l.path, &file) == nil && file.Dev == l.file.Dev && file.Ino == l.file.Ino {
		return false, nil
	}
	old := l.on
	if err := l.listen(); err != nil {
		return false, err
	}
	old.SetUnlinkOnClose(false) // the path now belongs to the new socket
	_ = old.Close()
	return true, nil
}

// Accept implements net.Listener.
func (l *Lasting) Accept() (net.Conn, error) {
	for {
		on := l.now()
		c, err := on.Accept()
		if err == nil || on == l.now() {
			return c, err
		}
	}
}

func (l *Lasting) now() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on
}

// Close implements net.Listener.
func (l *Lasting) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.on.Close()
}

// Addr implements net.Listener.
func (l *Lasting) Addr() net.Addr { return l.now().Addr() }
