package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// The modes of the socket and of its directory.
const (
	socketMode = 0o660
	dirMode    = 0o750
)

// Listen makes the agent's socket, 0660 and of group gid, in its directory,
// which is made 0750 if it is absent. The socket of an agent that is dead is
// replaced; a living one is fault.Conflict.
func Listen(path string, gid int) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := makeDir(dir, gid); err != nil {
		return nil, err
	}
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	// A bound socket has the mode that it had before; the umask would be the
	// whole process's.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	bound, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	l := bound.(*net.UnixListener)
	if err := secureSocket(path, gid); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// makeDir makes the directory or refuses one that others may change.
func makeDir(dir string, gid int) error {
	err := os.Mkdir(dir, dirMode)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make the socket's directory: %w", err)
	}
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the socket's directory %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fault.New(fault.NeedsOperator, "cannot listen in %s: it belongs to user %d", dir, st.Uid)
	}
	if err := unix.Fchown(fd, -1, gid); err != nil {
		return fmt.Errorf("cannot give %s to group %d: %w", dir, gid, err)
	}
	if err := unix.Fchmod(fd, dirMode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", dir, err)
	}
	return nil
}

// clearSocket removes a socket that nobody listens on.
func clearSocket(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fault.New(fault.NeedsOperator, "cannot listen on %s: it is there and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		defer c.Close()
		if p, err := peerOf(c.(*net.UnixConn)); err == nil {
			return fault.New(fault.Conflict, "another agent is running (pid %d) on %s", p.PID, path)
		}
		return fault.New(fault.Conflict, "another agent is running on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		// A full backlog is EAGAIN: somebody is there, if slow.
		return fault.New(fault.Conflict, "another agent may be running on %s: %v", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the socket of a dead agent: %w", err)
	}
	return nil
}

// secureSocket sets owner and mode and reads them back. The bound socket is
// opened by O_PATH, so that nothing put in its place is changed instead.
func secureSocket(path string, gid int) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer unix.Close(fd)
	// fchmod refuses O_PATH descriptors; the link in /proc names the same inode.
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot give %s to group %d: %w", path, gid, err)
	}
	if err := unix.Chmod(self, socketMode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Mode&0o7777 != socketMode || int(st.Gid) != gid || int(st.Uid) != os.Geteuid() {
		return fault.New(fault.NeedsOperator, "cannot secure %s: mode %o, owner %d:%d", path, st.Mode, st.Uid, st.Gid)
	}
	return nil
}
