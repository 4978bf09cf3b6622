package agent

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

// settle is how long a folder must be quiet before its files are read:
// editors write a file in several steps.
const settle = 200 * time.Millisecond

// watchFolder calls changed at first and whenever the folder's files changed
// and were then left alone for a moment, until ctx ends; concerns tells those
// files from others. Files count as changed, too, when they are links and
// what they lead to changes. It is called again after the time that it
// returns; zero: no such time. The error is fs.ErrNotExist when the folder
// itself goes away.
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
			case event.Op&^fsnotify.Chmod == 0:
			case filepath.Dir(event.Name) == dir && concerns(event.Name), leadsElsewhere(links, dir, event.Name, concerns):
				quiet.Reset(settle)
			}
		case <-quiet.C:
			links = linksOf(dir, concerns)
			watchTargets(watcher, dir, links)
			next, err := changed()
			if ctx.Err() != nil { // it may have been cut short
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

// linksOf tells where the links of a folder lead that concern its watcher.
func linksOf(dir string, concerns func(path string) bool) map[string]string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // told by who reads the files
	}
	links := map[string]string{}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if e.Type()&fs.ModeSymlink == 0 || !concerns(link) {
			continue
		}
		target, err := filepath.EvalSymlinks(link)
		if err != nil { // it leads nowhere yet
			target, _ = os.Readlink(link)
			if !filepath.IsAbs(target) {
				target = filepath.Join(dir, target)
			}
		}
		links[link] = target
	}
	return links
}

// watchTargets watches the folders that links lead to. One that cannot be
// watched is not there, and its file is told of as one that cannot be read.
func watchTargets(watcher *fsnotify.Watcher, dir string, links map[string]string) {
	here, err := os.Stat(dir)
	if err != nil {
		return
	}
	for _, target := range links {
		// The folder itself keeps the name by which its events are known.
		if there, err := os.Stat(filepath.Dir(target)); err == nil && !os.SameFile(here, there) {
			_ = watcher.Add(filepath.Dir(target))
		}
	}
}

// leadsElsewhere reports whether an event is one of a file that a link leads
// to, or changed where links lead.
func leadsElsewhere(links map[string]string, dir, path string, concerns func(path string) bool) bool {
	for _, target := range links {
		if target == path {
			return true
		}
	}
	return len(links) > 0 && !maps.Equal(links, linksOf(dir, concerns))
}
