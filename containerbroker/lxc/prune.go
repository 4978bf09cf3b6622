package lxc

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"hostler/internal/pause"
)

// mostRemoved bounds how many removed instances keep their logs, so that
// instances that come and go often do not fill the disk. Each has at most 2 MiB.
const mostRemoved = 20

// pruneEvery is the interval at which prune runs while nothing is removed.
const pruneEvery = time.Hour

// prune removes the folders of removed instances whose time is over, and those of
// the oldest beyond mostRemoved. The last change of a folder is the end of
// dismantle.
func (d *Driver) prune() {
	entries, err := os.ReadDir(d.own("removed"))
	if err != nil {
		return
	}
	ended := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			ended[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return ended[b.Name()].Compare(ended[a.Name()]) })
	for n, e := range entries {
		if n < mostRemoved && d.opts.KeepRemoved > 0 && time.Since(ended[e.Name()]) < d.opts.KeepRemoved {
			continue
		}
		path := d.own("removed", e.Name())
		if _, err := os.Lstat(filepath.Join(path, fileConfig)); err == nil {
			continue // its root filesystem is not removed yet
		}
		err := d.refuseMounts(path)
		if err == nil {
			err = os.RemoveAll(path)
		}
		if err != nil {
			d.log.Warn("The logs of a removed instance cannot be deleted.", "folder", path, "error", err)
		}
	}
}

// expire calls prune as long as the event stream lasts, or once if no logs are
// kept.
func (w *watcher) expire() {
	if w.d.opts.KeepRemoved == 0 {
		w.d.prune()
		return
	}
	every := min(pruneEvery, max(w.d.opts.KeepRemoved, time.Second))
	for w.d.prune(); pause.For(w.ctx, every) == nil; w.d.prune() {
	}
}
