//go:build integration

package machines

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Z29: what the agent keeps is for root alone, and what a person tells a guest
// shows nowhere else than in the guest's own configuration.
func TestFilesAndSecrets(t *testing.T) {
	s, a := start(t)
	const secret = "correct-horse-battery-staple"
	site := fmt.Sprintf("version: 1\nmachines:\n  web: {type: lxd, image: \"lxd:tiny\", cloud-init: {user-data: \"#cloud-config\\npassword: %s\\n\"}}\n", secret)
	a.Apply("site", site)
	a.Apply("site", strings.Replace(site, secret, secret+"-2", 1))
	if i := must(t, s, "web"); !strings.Contains(i.Config["cloud-init.user-data"], secret) {
		t.Fatal("the guest was not told its user-data")
	}
	// A declaration that is wrong shows the line that is wrong, and that of
	// user-data never.
	if _, out := a.Exit("apply", "-f", a.File("wrong", strings.Replace(site, "password", "password: x\\n  y", 1))); strings.Contains(out, secret) {
		t.Errorf("an error shows the secret:\n%s", out)
	}
	for _, args := range [][]string{{"events"}, {"status"}, {"get", "machines", "-o", "json"}, {"doctor"}, {"plan", "-f", a.File("site", site)}} {
		if _, out := a.Exit(args...); strings.Contains(out, secret) {
			t.Errorf("%v shows the secret", args)
		}
	}
	if strings.Contains(a.Log(), secret) {
		t.Error("the log shows the secret")
	}
	for _, pid := range []int{a.PID(), s.PID()} {
		if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || strings.Contains(string(argv), secret) {
			t.Errorf("argv of %d: %v", pid, err)
		}
	}
	modes := map[string]fs.FileMode{"state": 0o700, "run": 0o750, filepath.Join("run", "hostler.sock"): 0o660}
	for name, want := range modes {
		info, err := os.Lstat(filepath.Join(a.Dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", name, info.Mode().Perm(), want, err)
		}
	}
	err := filepath.WalkDir(filepath.Join(a.Dir, "state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 0 {
			t.Errorf("%s belongs to user %d", path, stat.Uid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
