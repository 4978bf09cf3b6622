//go:build integration

package loop_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/storage"
	"hostler/storage/loop"
)

// Z24: a volume with another device of the host on it stays attached, and the error
// names that device, e.g. of a volume group that a guest made.
func TestDeviceOnTheVolume(t *testing.T) {
	dir, sys := t.TempDir(), t.TempDir()
	s, r := source(dir, "one"), ref("data")
	volume(t, s, r, mib, false)
	a, err := attach(s, r)
	must(t, err)
	own := filepath.Join(sys, "block", filepath.Base(a.Device))
	for _, made := range []string{filepath.Join(own, "loop"), filepath.Join(own, "holders/dm-3"), filepath.Join(sys, "block/dm-3/dm")} {
		must(t, os.MkdirAll(made, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(sys, "block/dm-3/dm/name"), []byte("guest-root\n"), 0o600))
	stacked := loop.New(loop.Options{Dir: dir, Namespace: "one", Sys: sys})
	var busy *storage.BusyError
	if err := detach(stacked, r); !errors.As(err, &busy) || !strings.Contains(err.Error(), "the host's device guest-root is on it") {
		t.Errorf("detached with a device on it: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(own, "holders/dm-3")))
	must(t, detach(stacked, r))
	if v := describe(t, s, r); len(v.Attachments) != 0 {
		t.Errorf("%+v", v)
	}
}
