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
	// written are the files that were being written.
	written []string
	// others tells the other files apart from what they may become.
	others map[string]string
	// due is when these are to be applied whatever happens; zero: at no time.
	due time.Time
}

// roundOf is the round that ended now and wants the next one after that time,
// zero: no time.
func roundOf(dir string, written []string, now time.Time, next time.Duration) round {
	r := round{written: written, others: stampsOf(dir, written)}
	if next > 0 {
		r.due = now.Add(next)
	}
	return r
}

// waits says that there is nothing to do but to wait for those who write: to
// apply a file looks at the whole host, and somebody may leave one open.
func (r round) waits(dir string, now time.Time) bool {
	if len(r.written) == 0 || !r.due.IsZero() && !now.Before(r.due) {
		return false
	}
	for _, path := range r.written {
		if !stillWritten(path) {
			return false
		}
	}
	return maps.Equal(r.others, stampsOf(dir, r.written))
}

// stampsOf tells the files of a folder that are not being written from what
// they were.
func stampsOf(dir string, written []string) map[string]string {
	present, err := declarationFiles(dir)
	if err != nil {
		return nil // told by who reads the files
	}
	stamps := map[string]string{}
	for _, path := range present {
		if slices.Contains(written, path) {
			continue
		}
		stamps[path] = ""
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil {
			stamps[path] = fmt.Sprint(stat.Dev, stat.Ino, stat.Size, stat.Mtim)
		}
	}
	return stamps
}
