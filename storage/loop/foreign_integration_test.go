//go:build integration

package loop_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/storage"
)

// losetup makes a device as another program does.
func losetup(t *testing.T, options ...string) (device string) {
	t.Helper()
	out, err := exec.Command("losetup", append([]string{"--find", "--show"}, options...)...).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// A device that another program made of a volume's file, of all or of a part of
// it, is never taken for the volume's. The volume is not attached beside it, and
// not destroyed.
func TestDeviceOfAnotherProgram(t *testing.T) {
	for name, options := range map[string][]string{
		"all": nil, "the end": {"--offset", "524288"}, "the beginning": {"--sizelimit", "524288"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, r := source(dir, "one"), ref("data")
			volume(t, s, r, mib, false)
			device := losetup(t, append(options, filepath.Join(dir, "data.img"))...)
			if a, err := attach(s, r); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "losetup -d "+device) {
				t.Errorf("it is attached as %+v, %v", a, err)
			}
			v := describe(t, s, r)
			if a, is := v.Device(); is || len(v.Attachments) != 1 || v.Attachments[0].Device != device {
				t.Errorf("its device is %+v of %+v", a, v.Attachments)
			}
			var busy *storage.BusyError
			if err := destroy(s, r); !errors.As(err, &busy) {
				t.Errorf("its destruction: %v", err)
			}
			must(t, exec.Command("losetup", "--detach", device).Run())
			a, err := attach(s, r)
			must(t, err)
			second := losetup(t, append(options, filepath.Join(dir, "data.img"))...)
			v = describe(t, s, r)
			if is, attached := v.Device(); !attached || is != a || len(v.Attachments) != 2 {
				t.Errorf("beside %s its device is %+v, not %+v", second, is, a)
			}
		})
	}
}
