package conffiles

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quietTime is how long a folder must be quiet before its files are read,
// because editors write a file in several steps.
const quietTime = 200 * time.Millisecond

// watchFolder calls changed() at the start and whenever files of the folder
// changed and were then quiet for quietTime, until ctx ends. concerns() selects
// the files. A symbolic link also counts as changed when its target changes. A
// new modification time is a change, and a new mode is none.
// changed() returns the delay before its next call, or zero if none is needed.
// The error of watchFolder() is fs.ErrNotExist if the folder itself is removed.
func watchFolder(ctx context.Context, dir string, concerns func(path string) bool, changed func() (time.Duration, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", dir, err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		return fmt.Errorf("cannot watch %s: %w", dir, err)
	}
	var links map[string]string
	var times map[string]time.Time // from before the last call of changed()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("cannot go on watching %s: %w", dir, err)
		case event := <-watcher.Events:
			switch {
			case event.Name == dir && (event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)):
				return fmt.Errorf("cannot go on watching %s: %w", dir, fs.ErrNotExist)
			case event.Op&^fsnotify.Chmod == 0 && maps.Equal(times, timesOf(dir, concerns)):
			case filepath.Dir(event.Name) == dir && concerns(event.Name), leadsElsewhere(links, dir, event.Name, concerns):
				quiet.Reset(quietTime)
			}
		case <-quiet.C:
			links = linksOf(dir, concerns)
			watchTargets(watcher, dir, links)
			times = timesOf(dir, concerns)
			next, err := changed()
			if ctx.Err() != nil { // changed() may have been cut short
				return nil
			}
			if err != nil {
				return err
			}
			if next > 0 {
				quiet.Reset(next)
			}
		}
	}
}

// linksOf maps the folder's symbolic links that concern the watcher to their
// targets.
func linksOf(dir string, concerns func(path string) bool) map[string]string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the reader of the files reports the error
	}
	links := map[string]string{}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if e.Type()&fs.ModeSymlink == 0 || !concerns(link) {
			continue
		}
		target, err := filepath.EvalSymlinks(link)
		if err != nil { // the target does not exist yet
			target, _ = os.Readlink(link)
			if !filepath.IsAbs(target) {
				target = filepath.Join(dir, target)
			}
		}
		links[link] = target
	}
	return links
}

// timesOf maps the folder's files that concern the watcher to their modification
// times. A link has the time of its target.
func timesOf(dir string, concerns func(path string) bool) map[string]time.Time {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the reader of the files reports the error
	}
	times := map[string]time.Time{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !concerns(path) {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			times[path] = info.ModTime()
		}
	}
	return times
}

// watchTargets watches the folders of the links' targets. It skips folders that
// do not exist; the reader then reports the file as unreadable.
func watchTargets(watcher *fsnotify.Watcher, dir string, links map[string]string) {
	here, err := os.Stat(dir)
	if err != nil {
		return
	}
	for _, target := range links {
		// A second watch on the same folder would change the path in its events.
		if there, err := os.Stat(filepath.Dir(target)); err == nil && !os.SameFile(here, there) {
			_ = watcher.Add(filepath.Dir(target))
		}
	}
}

// leadsElsewhere reports whether an event concerns a link's target, or whether
// the links now have other targets.
func leadsElsewhere(links map[string]string, dir, path string, concerns func(path string) bool) bool {
	for _, target := range links {
		if target == path {
			return true
		}
	}
	return len(links) > 0 && !maps.Equal(links, linksOf(dir, concerns))
}
