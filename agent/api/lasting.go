package api

import (
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Lasting is a listener on the agent's socket that outlives the socket's file:
// whoever removes the folder shuts nobody out for long.
type Lasting struct {
	path   string
	groups []int

	mu     sync.Mutex
	on     *net.UnixListener
	file   unix.Stat_t
	closed bool
}

// ListenLasting is Listen for a socket that Renew makes again.
func ListenLasting(path string, groups ...int) (*Lasting, error) {
	l := &Lasting{path: path, groups: groups}
	return l, l.listen()
}

func (l *Lasting) listen() error {
	on, err := Listen(l.path, l.groups...)
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

// Renew looks whether the socket's file is still there, and makes it again, with
// its folder, where it is not. Connections that are open stay so. Errors are
// those of Listen; nothing has changed then.
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
	old.SetUnlinkOnClose(false) // the name is the new one's
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
