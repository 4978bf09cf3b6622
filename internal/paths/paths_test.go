package paths

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestDefaults(t *testing.T) {
	p := New("", "", "", "")
	for got, want := range map[string]string{
		p.Config:         "/etc/hostler/hostler.yaml",
		p.ConfD():        "/etc/hostler/conf.d",
		p.Socket():       "/run/hostler/hostler.sock",
		p.HostLock():     "/run/hostler/lock/host",
		p.SysctlDropIn(): "/etc/sysctl.d/60-hostler.conf",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestSecondAgentSharesOnlyTheHost(t *testing.T) {
	p := New("", "/srv/a/hostler.yaml", "/srv/a/state", "/srv/a/run")
	if p.ConfD() != "/srv/a/conf.d" || p.Socket() != "/srv/a/run/hostler.sock" || p.Images() != "/srv/a/state/images" {
		t.Errorf("own places: %s %s %s", p.ConfD(), p.Socket(), p.Images())
	}
	if p.HostLock() != New("", "", "", "").HostLock() {
		t.Errorf("two host locks: %s and %s", p.HostLock(), New("", "", "", "").HostLock())
	}
}

func TestExisting(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{dir: dir, filepath.Join(dir, "a", "b"): dir, "/": "/"} {
		if got := Existing(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// C23: the LXD socket is found by LXD_DIR, the snap's path, Debian's path.
func TestFindLXDSocketOrder(t *testing.T) {
	root := t.TempDir()
	p := New(root, "", "", "")
	if got := p.FindLXDSocket(""); got != "" {
		t.Errorf("found %s on a host without LXD", got)
	}
	listen := func(dir string) string {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// The socket's absolute path may be too long to bind, so bind it by a
		// relative path.
		t.Chdir(dir)
		l, err := net.Listen("unix", "unix.socket")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return lxdSocket(dir)
	}
	debian := listen(filepath.Join(root, "/var/lib/lxd"))
	if got := p.FindLXDSocket(""); got != debian {
		t.Errorf("found %q, want %s", got, debian)
	}
	snap := listen(filepath.Join(root, "/var/snap/lxd/common/lxd"))
	if got := p.FindLXDSocket(""); got != snap {
		t.Errorf("found %q, want %s", got, snap)
	}
	if p.Used = []string{filepath.Dir(debian)}; p.FindLXDSocket("") != debian {
		t.Errorf("found %q, not the LXD with the machines", p.FindLXDSocket(""))
	}
	own := listen(t.TempDir())
	if got := p.FindLXDSocket(filepath.Dir(own)); got != own {
		t.Errorf("found %q, want %s", got, own)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if got := p.FindLXDSocket(filepath.Dir(own)); got != "" {
		t.Errorf("LXD_DIR without a socket fell back to %s", got)
	}
}
