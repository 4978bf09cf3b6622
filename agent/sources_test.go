package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/paths"
)

// The snap's LXD ignores /etc/subuid and /etc/subgid, which on Ubuntu have no
// row of root. Debian's LXD and Incus need the row.
func TestGuestIDsOfTheSnap(t *testing.T) {
	t.Setenv("LXD_DIR", "")
	t.Setenv("INCUS_DIR", "")
	for name, c := range map[string]struct {
		folders []string
		fails   bool
	}{
		"Debian's":       {[]string{paths.DebianLXDDir}, true},
		"snap":           {[]string{paths.SnapLXDDir}, false},
		"snap and Incus": {[]string{paths.SnapLXDDir, paths.DebianIncusDir}, true},
	} {
		p := paths.New(t.TempDir(), "", "", "")
		for _, folder := range c.folders {
			if err := os.MkdirAll(p.Host(folder), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mknod(filepath.Join(p.Host(folder), "unix.socket"), unix.S_IFSOCK|0o600, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(p.Host("/etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{p.SubUIDs(), p.SubGIDs()} {
			if err := os.WriteFile(file, []byte("ubuntu:100000:65536\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m, err := guestMap(p)
		if (err != nil) != c.fails || !c.fails && m != guestIDs || c.fails && !strings.Contains(err.Error(), "run `usermod --add-subuids 1000000-1000999999 root`") {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}
