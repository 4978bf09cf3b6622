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

// LXD sends the event of an instance's death only after its cleanup, half a
// second or more later, although its listing shows the death after a tenth of a
// second. So while an event stream is open, inits watches the instances' init
// processes through pidfds. When an init ends, the driver sends an extra event
// at once, and another when LXD knows of the death. If processes cannot be
// watched, LXD's own events remain.
type inits struct {
	mu sync.Mutex
	// pids are the last known init process ids, by instance.
	pids map[string]int64
	// ends holds when the last known init ended by itself, by instance.
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
	// maxInits bounds the watched inits: each takes one of the agent's 256 file
	// descriptors.
	maxInits = 128
	// deathLook is the interval between looks at an instance whose init ended;
	// deathTimeout ends them.
	deathLook    = 20 * time.Millisecond
	deathTimeout = 3 * time.Second
)

// follow begins to watch; it calls died once for every init that ends. stop
// ends the watch and waits until died has returned.
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

// see notes the init of an instance; 0 means none.
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

// justDied reports whether an init ended by itself within deathTimeout. LXD
// may need that time for its cleanup, and refuses to start the instance until
// then.
func (i *inits) justDied(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	end, ok := i.ends[name]
	return ok && time.Since(end) < deathTimeout
}

// seeAll notes the inits of all instances.
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
// has ended; false means that the file was closed.
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
		found, err := d.read(c, name)
		if err != nil {
			return // the instance or LXD is gone; the next listing shows it
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
