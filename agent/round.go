package agent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// round is what the last look at a folder of declarations left open.
type round struct {
	// before tells the files apart from what they may become, as they were when
	// the round began: what changed during it is looked at again.
	before map[string]string
	// written are the files that were being written.
	written []string
	// due is when the others are to be applied whatever happens; zero: at no
	// time.
	due time.Time
}

// waits says that there is nothing to do but to wait for those who write: to
// apply a file looks at the whole host, and somebody may leave one open.
func (r round) waits(dir string, now time.Time) bool {
	if len(r.written) == 0 || !r.due.IsZero() && !now.Before(r.due) || slices.ContainsFunc(r.written, func(path string) bool { return !stillWritten(path) }) {
		return false
	}
	before, after := maps.Clone(r.before), stampsOf(dir)
	for _, path := range r.written { // these grow
		delete(before, path)
		delete(after, path)
	}
	return maps.Equal(before, after)
}

// stampsOf tells the declarations of a folder from what they were.
func stampsOf(dir string) map[string]string {
	present, err := declarationFiles(dir)
	if err != nil {
		return nil // told by who reads the files
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
