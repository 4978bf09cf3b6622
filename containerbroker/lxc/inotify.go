package lxc

import (
	"bytes"
	"encoding/binary"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// read handles inotify's events until the stream ends.
func (w *watcher) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			size := int(binary.NativeEndian.Uint32(buffer[at+12:]))
			wd, mask := int32(binary.NativeEndian.Uint32(buffer[at:])), binary.NativeEndian.Uint32(buffer[at+4:])
			name := buffer[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+size]
			at += unix.SizeofInotifyEvent + size
			if !w.handle(wd, mask, string(bytes.TrimRight(name, "\x00"))) {
				return
			}
		}
	}
}

// handle returns false if events may have been lost.
func (w *watcher) handle(wd int32, mask uint32, file string) bool {
	w.mu.Lock()
	instance, known := w.folders[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(w.folders, wd)
		delete(w.freezers, wd)
	}
	w.mu.Unlock()
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		return false
	case !known:
		w.freezerChanged(wd)
	case instance == "" && (mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0):
		return false
	case instance == "" && !hidden(file):
		w.folder(mask, file)
	case instance != "":
		w.content(instance, mask, filepath.Base(file))
	}
	return true
}

func (w *watcher) folder(mask uint32, name string) {
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.add(name)
		w.emit(name, "created")
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		w.drop(name)
		w.emit(name, "deleted")
	}
}

// content handles an event of an instance's files. liblxc opens the console's log
// when it starts an instance; others open it to read.
func (w *watcher) content(instance string, mask uint32, file string) {
	switch {
	case file == fileConsole && mask&unix.IN_OPEN != 0:
		w.look(instance)
	case (file == fileConfig || file == fileNote) && mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_DELETE) != 0:
		w.emit(instance, "changed")
	}
}
