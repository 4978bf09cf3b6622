package images

import (
	"os"
	"testing"
	"time"
)

// The file of a replaced image stays for an hour, however old it is, because a
// driver may be about to read it. Then the next image frees it, or the next need
// for space.
func TestReplacedFilesAreFreed(t *testing.T) {
	w := newWorkshop()
	now := time.Now()
	var free func() int64
	c := open(t, func(o *Options) {
		o.Runner, o.Clock = w, func() time.Time { return now }
		free = onSmallDisk(t, o, 2048)
	})
	build := func() string {
		t.Helper()
		a, err := c.Build(t.Context(), "debian/12", FormatLXD, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Rootfs
	}
	there := func(path string, want bool) {
		t.Helper()
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	first := build()
	now = now.Add(48 * time.Hour)
	second := build()
	there(first, true)
	now = now.Add(replacedAge - time.Minute)
	third := build()
	there(first, true)
	now = now.Add(2 * time.Minute)
	fourth := build()
	there(first, false)
	there(second, true)
	if err := c.needSpace(free() - spare + 1); err == nil {
		t.Error("there is space for an image of the size of the disk")
	}
	there(second, true)
	now = now.Add(replacedAge)
	if err := c.needSpace(free() - spare + 1); err != nil {
		t.Error(err)
	}
	there(second, false)
	there(third, false)
	there(fourth, true)
}
