//go:build integration

package dhcp_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/hostnet/dhcp"
	"hostler/internal/run"
)

// A dnsmasq that an earlier agent left on the bridge, under another network uid
// or state directory, is ended. A foreign dnsmasq stays and is named in the
// error.
func TestEarlierServerIsEnded(t *testing.T) {
	former, dir, n, _ := newServer(t)
	network := lan("02:00:00:00:00:10")
	start := func(s *dhcp.Server) (err error) {
		err2 := n.Do(func() error { _, err = s.Ensure(t.Context(), network); return nil })
		return errors.Join(err, err2)
	}
	next := func(dir string) *dhcp.Server {
		s := dhcp.New(dir, n.Runner(), slog.New(slog.DiscardHandler))
		t.Cleanup(func() {
			if err := s.Remove(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	if err := start(former); err != nil {
		t.Fatal(err)
	}

	// The package was purged and reinstalled: the files are gone.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	second := next(filepath.Join(filepath.Dir(dir), "another-uid"))
	if err := start(second); err != nil {
		t.Fatal(err)
	}
	if former.Running() || !second.Running() {
		t.Errorf("the former one runs %v, the second %v", former.Running(), second.Running())
	}

	// An agent with another state directory.
	third := next(filepath.Join(t.TempDir(), "dhcp", "uid"))
	if err := start(third); err != nil {
		t.Fatal(err)
	}
	if second.Running() || !third.Running() {
		t.Errorf("the second one runs %v, the third %v", second.Running(), third.Running())
	}
	if err := third.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A foreign dnsmasq, started with the same command line.
	strangers := t.TempDir()
	conf := filepath.Join(strangers, "dnsmasq.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "listen-address=10.20.0.1\nbind-interfaces\npid-file=%s/pid\n", strangers), 0o644); err != nil {
		t.Fatal(err)
	}
	stranger, err := n.Runner().Run(t.Context(), run.Command{
		Path: "/usr/sbin/dnsmasq", Args: []string{"--keep-in-foreground", "--conf-file=" + conf}, Detach: filepath.Join(strangers, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(stranger.PID, syscall.SIGKILL) }()
	for {
		if data, err := os.ReadFile(filepath.Join(strangers, "pid")); err == nil && len(data) > 0 {
			break
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	err = start(third)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the process %d (", stranger.PID)) || !strings.Contains(err.Error(), "holds 10.20.0.1:53") {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(stranger.PID, 0); err != nil {
		t.Errorf("the stranger is gone: %v", err)
	}
}
