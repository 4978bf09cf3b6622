package lxd

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"
	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/pause"
)

// inits watches the instances' init processes through pidfds while an event
// stream is open. LXD's listing shows an instance's death after a tenth of a
// second, but LXD sends the event only after its cleanup, half a second or more
// later. So when an init ends, the driver sends an extra event at once, and
// another when LXD knows of the death. If processes cannot be watched, only
// LXD's own events arrive.
type inits struct {
	mu sync.Mutex
	// pids maps an instance's name to the process id of its last known init.
	pids map[string]int64
	// ends maps an instance's name to the time at which its last known init
	// ended without a request of this driver.
	ends map[string]time.Time
	// open is nil while no event stream is open.
	open *initWatch
}

// initWatch is the set of watched processes of an event stream.
type initWatch struct {
	files map[string]watchedInit
	died  func(name string, pid int64)
	ended sync.WaitGroup
}

type watchedInit struct {
	pid  int64
	file *os.File // a pidfd
}

const (
	// maxInits bounds the number of watched inits, because each takes one of
	// the agent's 256 file descriptors.
	maxInits = 128
	// deathLook is the interval at which the driver looks at an instance whose
	// init ended. After deathTimeout it stops looking.
	deathLook    = 20 * time.Millisecond
	deathTimeout = 3 * time.Second
)

// follow begins to watch the inits, and calls died once for every init that
// ends. stop ends the watch and waits until all calls of died have returned.
func (i *inits) follow(died func(name string, pid int64)) (stop func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := &initWatch{files: map[string]watchedInit{}, died: died}
	i.open = w
	for name, pid := range i.pids {
		i.watch(name, pid)
	}
	return func() {
		i.mu.Lock()
		if i.open == w {
			i.open = nil
		}
		for _, init := range w.files {
			_ = init.file.Close()
		}
		clear(w.files)
		i.mu.Unlock()
		w.ended.Wait()
	}
}

// see sets the process id of an instance's init; 0 means that no init is to be
// watched.
func (i *inits) see(name string, pid int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pids == nil {
		i.pids = map[string]int64{}
	}
	delete(i.pids, name)
	delete(i.ends, name)
	if pid > 0 {
		i.pids[name] = pid
	}
	i.watch(name, pid)
}

// justDied reports whether the instance's init ended by itself less than
// deathTimeout ago. LXD may need that time for its cleanup, and refuses to
// start the instance until the cleanup is done.
func (i *inits) justDied(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	end, ok := i.ends[name]
	return ok && time.Since(end) < deathTimeout
}

// seeAll replaces the process ids of all inits.
func (i *inits) seeAll(pids map[string]int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pids = pids
	for name, end := range i.ends {
		if time.Since(end) > deathTimeout {
			delete(i.ends, name)
		}
	}
	if i.open == nil {
		return
	}
	for name := range i.open.files {
		i.watch(name, pids[name])
	}
	for name, pid := range pids {
		i.watch(name, pid)
	}
}

// watch waits in a goroutine for the end of a process. The caller holds mu.
func (i *inits) watch(name string, pid int64) {
	w := i.open
	if w == nil || w.files[name].pid == pid {
		return
	}
	if old, ok := w.files[name]; ok {
		_ = old.file.Close()
		delete(w.files, name)
	}
	if pid <= 0 || len(w.files) >= maxInits {
		return
	}
	fd, err := unix.PidfdOpen(int(pid), unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	init := watchedInit{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}
	w.files[name] = init
	w.ended.Go(func() {
		if !processEnded(init.file) {
			return
		}
		i.mu.Lock()
		current := w.files[name] == init
		if current {
			delete(w.files, name)
			_ = init.file.Close()
			delete(i.pids, name)
			if i.ends == nil {
				i.ends = map[string]time.Time{}
			}
			i.ends[name] = time.Now()
		}
		i.mu.Unlock()
		if current {
			w.died(name, pid)
		}
	})
}

// processEnded waits, without blocking a thread, until the process of a pidfd
// has ended. It returns false if the file was closed before.
func processEnded(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	}) == nil
}

// awaitDeath returns when LXD knows of the end of an instance's init, or has
// started the instance again.
func (d *Driver) awaitDeath(ctx context.Context, name string, pid int64) {
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	c := d.open(ctx, d.opts.RequestTimeout)
	var first api.Instance
	for look := 0; ; look++ {
		found, err := d.settled(c, name)
		if err != nil {
			return // the instance or LXD is gone, as the next listing will show
		}
		if look == 0 {
			first = found
		}
		switch status := statusOf(found.StatusCode); {
		case status != containerbroker.StatusRunning && status != containerbroker.StatusBusy:
			return
		case status == containerbroker.StatusRunning && !found.LastUsedAt.Equal(first.LastUsedAt):
			if again, err := d.running(c, name); err == nil && again.State.Pid != pid {
				d.inits.see(name, again.State.Pid)
			}
			return
		}
		if pause.For(ctx, deathLook) != nil {
			return
		}
	}
}
