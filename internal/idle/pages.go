package idle

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// resident returns the size of the process's resident set in bytes.
func resident() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("cannot read the size of the process: %w", err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, fmt.Errorf("cannot read the size of the process: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// unmapProgram removes the pages of the program file from the page table. The
// start and bursts of work use most of the program, an idle agent a tenth. The
// kernel keeps the pages in its page cache and maps them again, 16 pages at a
// time, when the program uses them.
func unmapProgram() error {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("cannot read the mappings of the process: %w", err)
	}
	for _, m := range unchangedFiles(string(text)) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("cannot unmap pages of the program: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unchangedFiles returns the private mappings of files that the process cannot
// write to, from the content of /proc/self/smaps (proc_pid_smaps(5)). It leaves
// out mappings with pages that differ from the file, e.g. the relocated part of
// a position-independent program.
func unchangedFiles(smaps string) (found []mapping) {
	var last mapping
	unchanged := false
	for line := range strings.Lines(smaps) {
		var m mapping
		var perms, offset, device, size string
		var inode uint64
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %d", &m.start, &m.end, &perms, &offset, &device, &inode); n == 6 {
			last, unchanged = m, strings.HasPrefix(perms, "r-") && strings.HasSuffix(perms, "p") && inode != 0
		} else if n, _ := fmt.Sscanf(line, "Anonymous: %s kB", &size); n == 1 {
			unchanged = unchanged && size == "0"
		} else if n, _ := fmt.Sscanf(line, "Swap: %s kB", &size); n == 1 && unchanged && size == "0" {
			// A changed page in swap is no longer anonymous memory.
			found = append(found, last)
		}
	}
	return found
}
