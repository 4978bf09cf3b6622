package storageprovisioner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// W10: a filesystem declared at another place is refused and stays with its
// data, for all kinds of places. Machines keep it, have it again after a
// restart of the host, and it is removed where it was created.
func TestFilesystemsDoNotMove(t *testing.T) {
	for name, c := range map[string]struct{ from, to spec.Filesystem }{
		"tmpfs to rootfs":  {spec.Filesystem{Provider: "tmpfs"}, spec.Filesystem{Provider: "rootfs"}},
		"rootfs to tmpfs":  {spec.Filesystem{Provider: "rootfs"}, spec.Filesystem{Provider: "tmpfs"}},
		"rootfs to volume": {spec.Filesystem{Provider: "rootfs"}, spec.Filesystem{Volume: "other"}},
		"volume to tmpfs":  {spec.Filesystem{Volume: "data"}, spec.Filesystem{Provider: "tmpfs"}},
		"volume to volume": {spec.Filesystem{Volume: "data"}, spec.Filesystem{Volume: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.volume("data", spec.Volume{})
			r.volume("other", spec.Volume{})
			r.filesystem("www", c.from)
			r.machine("web", spec.Attachment{Filesystem: "www", Path: "/srv"})
			r.pass()
			r.instance("web")
			r.pass()
			before, sources := r.host.state(), r.sources()
			calls := len(r.host.calls)
			r.filesystem("www", c.to)
			r.pass()
			r.pass()
			if len(r.host.calls) != calls {
				t.Errorf("done: %v", r.host.calls[calls:])
			}
			equal(t, r.sources(), sources)
			place := func(f spec.Filesystem) string {
				if f.Volume != "" {
					return "volume/" + f.Volume
				}
				return f.Provider
			}
			want := "it is on " + place(c.from) + " and cannot move to " + place(c.to) + ": declare it as before, or declare another object and move the data"
			if s := r.status(spec.KindFilesystem, "www"); s.Message != want || s.State != spec.StorageAttached {
				t.Errorf("%s: %s, want %s", s.State, s.Message, want)
			}
			r.host.reboot()
			r.restart()
			r.pass()
			equal(t, numbered(r.host.state()), numbered(before))
			equal(t, r.sources(), sources)

			r.filesystem("www", c.from)
			r.pass()
			if s := r.status(spec.KindFilesystem, "www"); s.Message != "" || s.State != spec.StorageAttached {
				t.Errorf("declared as it was: %s, %s", s.State, s.Message)
			}
			r.filesystem("www", c.to)
			r.gone("web")
			r.life(spec.KindFilesystem, "www", state.Dying)
			r.pass()
			if len(r.host.filesystems) != 0 || r.store.objects[state.ID{Kind: spec.KindFilesystem, Name: "www"}] != nil {
				t.Errorf("left over:\n%s", r.host.state())
			}
		})
	}
}

// I16: if the possible place of the data cannot be observed, no new filesystem
// is made.
func TestFilesystemMayBeWhereNobodyCanLook(t *testing.T) {
	r := newRig(t)
	r.filesystem("www", spec.Filesystem{Provider: "rootfs"})
	r.pass()
	r.filesystem("www", spec.Filesystem{Provider: "tmpfs"})
	r.host.blind["rootfs"] = errors.New("no kernel")
	calls := len(r.host.calls)
	r.pass()
	if s := r.status(spec.KindFilesystem, "www"); len(r.host.calls) != calls || !strings.Contains(s.Message, "no kernel") {
		t.Errorf("%+v, done: %v", s, r.host.calls[calls:])
	}
}

// A volume keeps its allocation, and the status says so.
func TestVolumesKeepTheirAllocation(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{Allocation: spec.AllocationSparse})
	r.volume("raw", spec.Volume{})
	r.pass()
	calls := len(r.host.calls)
	r.volume("data", spec.Volume{})
	r.volume("raw", spec.Volume{Allocation: spec.AllocationFull})
	r.pass()
	if len(r.host.calls) != calls {
		t.Errorf("done: %v", r.host.calls[calls:])
	}
	want := "its allocation is sparse and cannot become full: declare it as before, or declare another volume and move the data"
	if s := r.status(spec.KindVolume, "data"); s.Message != want || s.State != spec.StorageDetached {
		t.Errorf("%s: %s", s.State, s.Message)
	}
	if s := r.status(spec.KindVolume, "raw"); s.Message != "" {
		t.Errorf("%s", s.Message)
	}
	l, err := r.w.look(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(Shown(Plan(l.desired, l.observed, l.policy)), func(s Step) bool { return s.Held == want }) {
		t.Error("a plan does not tell")
	}
}
