package storageprovisioner

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// S18, S23, Z24: a filesystem that is unmounted and still has a device is
// detaching until the device is detached too.
func TestDetachEndsWithTheDevice(t *testing.T) {
	for _, life := range []state.Life{state.Alive, state.Dying} {
		r := newRig(t)
		r.filesystem("logs", spec.Filesystem{Provider: "rootfs", Retain: true})
		r.machine("web", spec.Attachment{Filesystem: "logs", Path: "/log"})
		r.pass()
		r.host.holds["logs"] = storage.Busy("/dev/loop99", "", []storage.Holder{{PID: 7, Command: "sleep", Path: "/log/x"}})
		r.machine("web")
		r.life(spec.KindFilesystem, "logs", life)
		next := r.pass()
		for range 3 {
			r.restart()
			r.pass()
		}
		s := r.status(spec.KindFilesystem, "logs")
		if s.State != spec.StorageDetaching || !strings.Contains(s.Message, "sleep (pid 7)") || s.Attempts.Count != 1 || !next.Equal(r.now.Add(30*time.Second)) {
			t.Errorf("%s, tried again at %v: %+v", life, next, s)
		}
		clear(r.host.holds)
		r.now = next
		r.pass()
		if held := r.host.filesystems["logs"].Held; held != "" {
			t.Errorf("%s: %s is left", life, held)
		}
		if _, there := r.store.objects[state.ID{Kind: spec.KindFilesystem, Name: "logs"}]; there != (life == state.Alive) {
			t.Errorf("%s: has a record: %v", life, there)
		}
	}
}

// S23, S24: a device that a killed agent left is detached by the next agent, or
// mounted again if a machine wants the filesystem.
func TestLeftDevice(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		r := newRig(t)
		r.filesystem("logs", spec.Filesystem{Provider: "rootfs"})
		r.pass()
		r.host.filesystems["logs"].Held = "/dev/loop99"
		want := spec.StorageDetached
		if wanted {
			r.machine("web", spec.Attachment{Filesystem: "logs", Path: "/log"})
			want = spec.StorageAttached
		}
		r.restart()
		r.pass()
		if f, s := r.host.filesystems["logs"], r.status(spec.KindFilesystem, "logs"); f.Held != "" || s.State != want {
			t.Errorf("wanted %v: %+v, %+v", wanted, *f, s)
		}
	}
}

// Z24: a forced retry also removes the views of machines, and applies to one
// attempt.
func TestForce(t *testing.T) {
	r := newRig(t)
	r.filesystem("logs", spec.Filesystem{Provider: "rootfs"})
	r.machine("web", spec.Attachment{Filesystem: "logs", Path: "/log"})
	r.pass()
	for _, call := range []string{"hide /state/mounts/web/logs", "detach filesystem/logs"} {
		r.host.fails[call] = storage.Busy("/log", "", nil)
	}
	r.machine("web")
	r.pass()
	record := spec.FilesystemRecord{Filesystem: spec.Filesystem{Provider: "rootfs", Size: spec.GiB}, Header: spec.Header{RetryRequest: 1, Force: true}}
	r.put(state.ID{Kind: spec.KindFilesystem, Name: "logs"}, record, state.Alive)
	r.pass()
	if s := r.status(spec.KindFilesystem, "logs"); s.State != spec.StorageDetached || s.Message != "" || len(r.host.views) != 0 {
		t.Errorf("%+v, seen: %v", s, r.host.views)
	}
	r.machine("web", spec.Attachment{Filesystem: "logs", Path: "/log"})
	r.pass()
	r.machine("web")
	r.pass()
	if s := r.status(spec.KindFilesystem, "logs"); s.State != spec.StorageDetaching || len(r.host.views) != 1 {
		t.Errorf("after the attempt: %+v, seen: %v", s, r.host.views)
	}
	r.put(state.ID{Kind: spec.KindFilesystem, Name: "logs"}, record, state.Dying)
	r.pass()
	if len(r.host.views) != 1 {
		t.Errorf("the removal is forced, seen: %v", r.host.views)
	}
}
