//go:build integration

package loop_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/storage"
	"hostler/storage/loop"
)

func force(s *loop.Source, r storage.Ref) error {
	return s.Detach(context.Background(), []storage.DetachParams{{Ref: r, Force: true}})[0]
}

// backing is the file behind a device, as sysfs shows it.
func backing(device string) string {
	file, _ := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	return strings.TrimSpace(string(file))
}

// Z24: a forced detach hides a device at once, whichever process set it up.
// Processes that have it open keep it, the data may be destroyed meanwhile, and
// the last of them frees the device.
func TestForcedDetach(t *testing.T) {
	for _, ours := range []bool{true, false} {
		dir := t.TempDir()
		s, r := source(dir, "one"), ref("data")
		volume(t, s, r, mib, false)
		var device string
		if ours {
			a, err := attach(s, r)
			must(t, err)
			device = a.Device
		} else {
			out, err := exec.Command("losetup", "-f", "--show", filepath.Join(dir, "data.img")).Output()
			must(t, err)
			device = strings.TrimSpace(string(out))
		}
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		must(t, force(s, r))
		must(t, detach(s, r))
		if v := describe(t, s, r); len(v.Attachments) != 0 {
			t.Errorf("ours %v: it is seen as %+v", ours, v)
		}
		if _, err := f.WriteAt([]byte("kept"), 0); err != nil || f.Sync() != nil {
			t.Errorf("ours %v: who has it open cannot write: %v", ours, err)
		}
		must(t, destroy(s, r))
		if left := entries(t, dir); len(left) != 0 || backing(device) == "" {
			t.Errorf("ours %v: left %q, behind the device is %q", ours, left, backing(device))
		}
		must(t, f.Close())
		freed(t, device, dir)
	}
}

// Two devices on the same file would destroy its data: a device that is being
// released is kept again, or waited for.
func TestAttachAfterForcedDetach(t *testing.T) {
	dir := t.TempDir()
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, mib, false)
	a, err := attach(s, r)
	must(t, err)
	release := use(t, a.Device)
	must(t, force(s, r))
	if again, err := attach(s, r); err != nil || again != a {
		t.Errorf("attached as %+v, then %+v, %v", a, again, err)
	}
	var busy *storage.BusyError
	if err := detach(s, r); !errors.As(err, &busy) || len(busy.Holders) == 0 {
		t.Errorf("taken back, and detached while it is held: %v", err)
	}
	must(t, force(s, r))
	readOnly := func() (storage.VolumeAttachment, error) {
		got := s.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r, ReadOnly: true}})[0]
		return got.Value, got.Err
	}
	if b, err := readOnly(); !errors.As(err, &busy) || len(busy.Holders) == 0 {
		t.Errorf("attached otherwise as %+v while it is held: %v", b, err)
	}
	release()
	freed(t, a.Device, dir)
	if b, err := readOnly(); err != nil || !b.ReadOnly {
		t.Errorf("%+v, %v", b, err)
	}
}

// freed waits until no file of the directory is behind the device.
func freed(t *testing.T, device, dir string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); strings.HasPrefix(backing(device), dir+"/"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s still has %s behind it", device, backing(device))
		}
	}
}
