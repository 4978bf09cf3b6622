package hostlock

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
)

// Holder identifies the holder of a lock. The holder itself writes this record.
type Holder struct {
	PID     int       `json:"pid"`
	BootID  string    `json:"boot-id"`
	Purpose string    `json:"purpose"`
	Since   time.Time `json:"since"`
	Command string    `json:"command"`
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	return fmt.Sprintf("%s (process %d) for %s since %s", h.Command, h.PID, h.Purpose, h.Since.Format(time.RFC3339))
}

func holderPath(path string) string { return path + ".holder" }

func writeHolder(path, purpose string) error {
	data, err := json.Marshal(Holder{
		PID:     os.Getpid(),
		BootID:  BootID(),
		Purpose: purpose,
		Since:   time.Now().UTC().Truncate(time.Second),
		Command: command(),
	})
	if err != nil {
		return err
	}
	return atomicfile.Write(holderPath(path), data, 0o600)
}

// clearHolder deletes the holder's record. A failure does no harm, because Read
// checks the lock itself and ignores the record of a crashed holder.
func clearHolder(path string) { _ = os.Remove(holderPath(path)) }

// Read returns the holder of the lock at path, and whether the lock is held. It
// does not take the lock. The holder is unknown (PID 0) for a moment while the
// lock changes hands, or when another program than hostler holds the lock.
func Read(path string) (holder Holder, held bool) {
	var file syscall.Stat_t
	if err := syscall.Lstat(path, &file); err != nil {
		return Holder{}, false
	}
	data, err := os.ReadFile(holderPath(path))
	if err == nil && json.Unmarshal(data, &holder) == nil && holder.BootID == BootID() && hasOpen(holder.PID, file) {
		return holder, true
	}
	return Holder{}, inLockTable(file)
}

// hasOpen reports whether the process has the file open. Trying to take the
// lock instead would keep it from a waiter for a moment.
func hasOpen(pid int, file syscall.Stat_t) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		var open syscall.Stat_t
		if syscall.Stat(filepath.Join(dir, entry.Name()), &open) == nil && open.Dev == file.Dev && open.Ino == file.Ino {
			return true
		}
	}
	return false
}

// inLockTable reports whether the kernel's table shows a holder, even one
// without a record. It is the second choice, because on btrfs the table's
// device numbers differ from stat's.
func inLockTable(file syscall.Stat_t) bool {
	data, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false
	}
	return lockTableHas(string(data), unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
}

// lockTableHas parses lines such as "1: FLOCK ADVISORY WRITE 708 08:01:5678 0
// EOF", with major and minor in hexadecimal (proc_locks(5)). A waiter has "->"
// after the number.
func lockTableHas(table string, major, minor uint32, inode uint64) bool {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		var ma, mi uint32
		var ino uint64
		if _, err := fmt.Sscanf(f[5], "%x:%x:%d", &ma, &mi, &ino); err == nil && ma == major && mi == minor && ino == inode {
			return true
		}
	}
	return false
}

// BootID returns the id of the current boot of the host's kernel, or "" if it
// cannot be read.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func command() string {
	data, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return "hostler"
	}
	return strings.TrimSpace(string(data))
}
