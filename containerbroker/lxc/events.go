package lxc

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
)

// maxEvents is how many events wait for their reader before the stream is
// dropped.
const maxEvents = 1024

// watcher is an open event stream. It watches the folders of the instances by
// inotify, and each running instance by its process and an idle connection to
// its monitor (see follow). It is no client of the monitors' state messages: a
// monitor keeps such a client after the client's end.
type watcher struct {
	d      *Driver
	ctx    context.Context
	cancel context.CancelFunc
	file   *os.File
	events chan containerbroker.Event
	wait   sync.WaitGroup

	mu       sync.Mutex
	folders  map[int32]string   // names by inotify's watch descriptors; "" is the folder of instances
	freezers map[int32]*freezer // of running instances, by watch descriptor
	followed map[string]bool
}

const (
	maskPath     = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	maskInstance = unix.IN_OPEN | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR
)

// Events implements containerbroker.EventSource.
func (d *Driver) Events(ctx context.Context) (<-chan containerbroker.Event, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", d.opts.Path, err)
	}
	w := &watcher{
		d: d, file: os.NewFile(uintptr(fd), "inotify"), events: make(chan containerbroker.Event, maxEvents),
		folders: map[int32]string{}, freezers: map[int32]*freezer{}, followed: map[string]bool{},
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if err := w.begin(fd); err != nil {
		w.cancel()
		w.wait.Wait()
		_ = w.file.Close()
		return nil, fmt.Errorf("cannot watch %s: %w", d.opts.Path, err)
	}
	w.wait.Go(w.expire)
	stop := context.AfterFunc(w.ctx, func() { _ = w.file.Close() })
	go func() {
		w.read()
		w.cancel()
		stop()
		w.wait.Wait()
		_ = w.file.Close()
		close(w.events)
	}()
	return w.events, nil
}

func (w *watcher) begin(fd int) error {
	wd, err := unix.InotifyAddWatch(fd, w.d.opts.Path, maskPath)
	if err != nil {
		return err
	}
	w.folders[int32(wd)] = ""
	entries, err := os.ReadDir(w.d.opts.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && !hidden(e.Name()) {
			w.add(e.Name())
		}
	}
	return nil
}

// add watches the folder of an instance, and the instance if it runs.
func (w *watcher) add(name string) {
	_ = control(w.file, func(fd int) error {
		wd, err := unix.InotifyAddWatch(fd, w.d.instance(name), maskInstance)
		if err == nil {
			w.mu.Lock()
			w.folders[int32(wd)] = name
			w.mu.Unlock()
		}
		return err
	})
	w.look(name)
}

// drop ends the watch of a folder that was moved away.
func (w *watcher) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wd, other := range w.folders {
		if other == name {
			delete(w.folders, wd)
			_ = control(w.file, func(fd int) error {
				_, err := unix.InotifyRmWatch(fd, uint32(wd))
				return err
			})
		}
	}
}

// emit sends an event. A reader that is too slow loses the stream.
func (w *watcher) emit(name, action string) {
	select {
	case w.events <- containerbroker.Event{Instance: name, Action: action}:
	default:
		w.d.log.Warn("The event stream is dropped, because its reader is too slow.")
		w.cancel()
	}
}
