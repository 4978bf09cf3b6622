package conffiles

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// errBeingWritten says that a file may be incomplete.
var errBeingWritten = errors.New("it is being written: it is read when whoever writes it has closed it")

// whileWritten is the delay before a file that is being written is read again.
const whileWritten = 500 * time.Millisecond

// unwritten is how long a file must be unchanged before it is read, if the
// kernel does not tell whether a process has it open for writing.
const unwritten = 2 * time.Second

// readWhole reads a file up to a length of most bytes. It fails with
// errBeingWritten while a process has the file open for writing, and it delays
// new writers while it reads. Otherwise it could read a part of a declaration,
// which may be a valid but smaller declaration. It does not open a pipe, which
// would wait for a writer.
func readWhole(path string, most int64) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil, fault.New(fault.Invalid, "%s is a pipe, not a file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // also releases the lease
	writing, err := beingWritten(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if writing {
		return nil, fmt.Errorf("%s: %w", path, errBeingWritten)
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// stillWritten reports whether a process has the file open for writing.
func stillWritten(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	writing, err := beingWritten(file)
	return err == nil && writing
}

// beingWritten reports whether a process has the file open for writing. If not,
// it takes a read lease, with which the kernel delays new writers (fcntl(2),
// "Leases"). On a filesystem without leases, a file counts as being written if
// it changed within unwritten.
func beingWritten(file *os.File) (bool, error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	if !overNetwork(file) {
		switch _, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK); {
		case err == nil:
			return false, nil
		case errors.Is(err, unix.EAGAIN):
			return true, nil
		}
	}
	age := time.Since(info.ModTime())
	return age >= 0 && age < unwritten, nil
}

// overNetwork reports whether a server grants the file's leases. A server
// refuses a lease with the same error whether or not the file is being written.
func overNetwork(file *os.File) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(int(file.Fd()), &fs)
	return err == nil && slices.Contains([]uint32{unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC}, uint32(fs.Type)) //nolint:gosec // 32 bits by nature
}
