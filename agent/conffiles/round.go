package conffiles

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// round is the unfinished part of the last reading of a folder of declarations.
type round struct {
	// before holds the result of stampsOf() from the beginning of the round. A
	// file that changed during the round is therefore read again.
	before map[string]string
	// written lists the files that were being written.
	written []string
	// due is when the other files must be applied at the latest. Zero means never.
	due time.Time
}

// waits reports whether all changes since the round are in files that are still
// being written. The caller should then wait, because each apply reads the
// state of the whole host and a writer may keep a file open for long.
func (r round) waits(dir string, now time.Time) bool {
	if len(r.written) == 0 || !r.due.IsZero() && !now.Before(r.due) || slices.ContainsFunc(r.written, func(path string) bool { return !stillWritten(path) }) {
		return false
	}
	before, after := maps.Clone(r.before), stampsOf(dir)
	for _, path := range r.written { // these change while they are written
		delete(before, path)
		delete(after, path)
	}
	return maps.Equal(before, after)
}

// stampsOf returns, for each declaration of a folder, its device, inode, size
// and modification time as a text, which changes with the file.
func stampsOf(dir string) map[string]string {
	present, err := declarationFiles(dir)
	if err != nil {
		return nil // folderReader.read() reports the error
	}
	stamps := map[string]string{}
	for _, path := range present {
		stamps[path] = ""
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil {
			stamps[path] = fmt.Sprint(stat.Dev, stat.Ino, stat.Size, stat.Mtim)
		}
	}
	return stamps
}
