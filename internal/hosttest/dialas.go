package hosttest

import (
	"net"
	"runtime"
	"syscall"
	"unsafe"
)

// DialAs connects to a unix socket as a user with these groups. It connects
// from a thread that drops its ids. The goroutine never unlocks this thread, so
// the thread ends with the goroutine.
func DialAs(socket string, uid, gid uint32, groups ...uint32) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		if err := drop(uid, gid, groups); err != nil {
			done <- result{err: err}
			return
		}
		conn, err := net.Dial("unix", socket)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// drop sets the ids of this thread only.
func drop(uid, gid uint32, groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	return nil
}
