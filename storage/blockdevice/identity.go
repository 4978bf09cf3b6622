package blockdevice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity returns a text that identifies the device at path even after a
// restart of the host, when the device may have another number. A loop device
// is identified by the mark and the inode of its file, other devices by an id
// of the hardware or the device mapper, e.g. "wwid eui.0025385b71b0a5f1".
// Identity returns "" if the device has no such id.
func (h Host) Identity(path string) (string, error) {
	h = h.defaults()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("cannot identify the device: %w", err)
	}
	defer f.Close()
	if status, err := unix.IoctlLoopGetStatus64(int(f.Fd())); err == nil {
		return fmt.Sprintf("loop %s %d", unix.ByteSliceToString(status.File_name[:]), status.Inode), nil
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return "", fmt.Errorf("cannot identify the device: %w", err)
	}
	dir := filepath.Join(h.Sys, fmt.Sprintf("dev/block/%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev)))
	suffix := ""
	if number := value(dir, "partition"); number != "" {
		dir, suffix = filepath.Join(dir, ".."), " part "+number
	}
	for _, name := range []string{"dm/uuid", "wwid", "device/wwid", "serial", "device/serial"} {
		if v := value(dir, name); v != "" {
			return filepath.Base(name) + " " + v + suffix, nil
		}
	}
	return "", nil
}

// BackingFile returns the path of a loop device's backing file. It returns ""
// for other devices and for a deleted file.
func (h Host) BackingFile(path string) string {
	h = h.defaults()
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return ""
	}
	file := value(filepath.Join(h.Sys, fmt.Sprintf("dev/block/%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))), "loop/backing_file")
	if strings.HasSuffix(file, " (deleted)") {
		return ""
	}
	return file
}
