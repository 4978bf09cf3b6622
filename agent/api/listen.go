package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// These are the modes of the socket and of its directory.
const (
	socketMode = 0o660
	dirMode    = 0o750
)

// listen creates the socket and returns its listener; see Listen.
func listen(log *slog.Logger, path string, groups []int) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if len(groups) == 0 {
		groups = []int{0}
	}
	if err := makeDir(dir, groups); err != nil {
		return nil, err
	}
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	// Set the mode of the descriptor before the bind, because the bound socket
	// gets this mode. A umask would affect the whole process.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	bound, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	l := bound.(*net.UnixListener)
	if err := secureSocket(log, path, groups); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// makeDir creates the socket's directory or sets the mode and groups of an
// existing one. It refuses a directory of another user.
func makeDir(dir string, groups []int) error {
	gid := groups[0]
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
	// Ignore that a filesystem has no access control lists, because
	// secureSocket() logs a warning about this.
	if err := unix.Fsetxattr(fd, accessList, listOf(dirMode, groups[1:]), 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("cannot give %s to the groups %v: %w", dir, groups, err)
	}
	return nil
}

// clearSocket removes the socket of a dead agent. It returns fault.Conflict if
// an agent listens on the socket.
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
		// EAGAIN means a full backlog, i.e. an agent listens but is slow.
		return fault.New(fault.Conflict, "another agent may be running on %s: %v", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the socket of a dead agent: %w", err)
	}
	return nil
}

// secureSocket sets and checks the group, the mode and the access control list
// of the socket. It opens the socket once, with O_PATH, so that it does not
// change a file that later takes the socket's place.
func secureSocket(log *slog.Logger, path string, groups []int) error {
	gid := groups[0]
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer unix.Close(fd)
	// fchmod refuses O_PATH descriptors, but chmod of the link in /proc changes
	// the same inode.
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot give %s to group %d: %w", path, gid, err)
	}
	if err := unix.Chmod(self, socketMode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", path, err)
	}
	err = unix.Setxattr(self, accessList, listOf(socketMode, groups[1:]), 0)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		if len(groups) > 1 {
			log.Warn("The filesystem of the socket has no access control lists. Members of the further groups must use sudo or join the first group.",
				"socket", path, "first", gid, "further", groups[1:])
		}
	case err != nil:
		return fmt.Errorf("cannot give %s to the groups %v: %w", path, groups, err)
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

// accessList is the extended attribute that holds a file's access control list.
const accessList = "system.posix_acl_access"

// listOf returns the access control list that gives groups the same rights as
// the file's own group. It has the kernel's format (linux/posix_acl_xattr.h),
// which is a version and entries of tag, rights and id. Without groups the list
// says the same as the mode and serves to replace a longer list.
func listOf(mode uint32, groups []int) []byte {
	const (
		owner, group, named, mask, other = 0x01, 0x04, 0x08, 0x10, 0x20
		nobody                           = 0xffffffff
	)
	list := binary.LittleEndian.AppendUint32(nil, 2)
	entry := func(tag uint16, rights, id uint32) {
		list = binary.LittleEndian.AppendUint16(list, tag)
		list = binary.LittleEndian.AppendUint16(list, uint16(rights&7))
		list = binary.LittleEndian.AppendUint32(list, id)
	}
	entry(owner, mode>>6, nobody)
	entry(group, mode>>3, nobody)
	for _, gid := range groups {
		entry(named, mode>>3, uint32(gid)) //nolint:gosec // the kernel's own number
	}
	if len(groups) > 0 {
		entry(mask, mode>>3, nobody)
	}
	entry(other, mode, nobody)
	return list
}

// RenewableListener is a listener on the agent's socket. After the removal of
// the socket's file, Renew creates the socket again.
type RenewableListener struct {
	log    *slog.Logger
	path   string
	groups []int

	mu     sync.Mutex
	on     *net.UnixListener
	file   unix.Stat_t
	closed bool
}

// Listen creates the agent's socket with mode 0660, and its directory with mode
// 0750 if it is absent. Both belong to the first of groups, or to root's group
// if groups is empty. The other groups get access by an access control list. If
// the filesystem has no such lists, the log names the groups without access.
// Listen replaces the socket of a dead agent. It fails with fault.Conflict if an
// agent listens on the socket.
func Listen(log *slog.Logger, path string, groups ...int) (*RenewableListener, error) {
	l := &RenewableListener{log: log, path: path, groups: groups}
	return l, l.listen()
}

func (l *RenewableListener) listen() error {
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

// Renew creates the socket and its directory again if the socket's file is gone
// or was replaced. Open connections stay open. Renew fails like Listen and then
// leaves the listener as it is.
func (l *RenewableListener) Renew() (renewed bool, err error) {
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
func (l *RenewableListener) Accept() (net.Conn, error) {
	for {
		on := l.now()
		c, err := on.Accept()
		if err == nil || on == l.now() {
			return c, err
		}
	}
}

func (l *RenewableListener) now() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on
}

// Close implements net.Listener.
func (l *RenewableListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.on.Close()
}

// Addr implements net.Listener.
func (l *RenewableListener) Addr() net.Addr { return l.now().Addr() }
