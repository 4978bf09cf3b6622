package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errBeingWritten says that what a file holds may be a part of what it is
// going to hold.
var errBeingWritten = errors.New("it is being written: it is read when whoever writes it has closed it")

// whileWritten is when a file is looked at again that is being written.
const whileWritten = 500 * time.Millisecond

// unwritten is how long a file must have been left alone where the kernel does
// not tell who has it open for writing.
const unwritten = 2 * time.Second

// readWhole reads a file, at most so many bytes. It fails with errBeingWritten
// while somebody has the file open for writing, and holds off those who open
// it so while it reads: half of a declaration is a declaration of less.
func readWhole(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // and with it the lease
	writing, err := beingWritten(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if writing {
		return nil, fmt.Errorf("%s: %w", path, errBeingWritten)
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// stillWritten says whether somebody has a file open for writing.
func stillWritten(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	writing, err := beingWritten(file)
	return err == nil && writing
}

// beingWritten takes a read lease on an open file, which the kernel grants
// while nobody has the file open for writing and which it has a writer wait
// for (fcntl(2), "Leases"). Where there are no leases, a file counts as being
// written that was written a moment ago.
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

// overNetwork reports whether a file's lease is a server's business, which
// refuses one with the same error whether or not anybody writes.
func overNetwork(file *os.File) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(int(file.Fd()), &fs)
	return err == nil && slices.Contains([]uint32{unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC}, uint32(fs.Type)) //nolint:gosec // 32 bits by nature
}
