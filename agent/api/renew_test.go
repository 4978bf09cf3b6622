package api

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"hostler/agent/client"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
	"hostler/internal/hosttest"
)

// F35: the removed socket and its directory are made again with the same
// rights, and connections stay open.
func TestF35TheSocketIsMadeAgain(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(hosttest.SocketDir(t), "run", "s")
	l, err := Listen(slog.New(slog.DiscardHandler), path, readerGID)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, l) }()
	before := client.New(path)
	defer before.Close()
	ask := func(c *client.Client) {
		t.Helper()
		if _, err := c.Version(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ask(before)
	if renewed, err := l.Renew(); renewed || err != nil {
		t.Errorf("renewed though nothing happened: %v, %v", renewed, err)
	}
	for what, meddle := range map[string]func() error{
		"the folder":           func() error { return os.RemoveAll(filepath.Dir(path)) },
		"the socket":           func() error { return os.Remove(path) },
		"another one's socket": func() error { return leaveSocket(path) },
	} {
		if err := meddle(); err != nil {
			t.Fatal(err)
		}
		if renewed, err := l.Renew(); !renewed || err != nil {
			t.Fatalf("%s: %v, %v", what, renewed, err)
		}
		ask(before)
		after := client.New(path)
		ask(after)
		after.Close()
		for file, want := range map[string]os.FileMode{filepath.Dir(path): 0o750 | os.ModeDir, path: 0o660 | os.ModeSocket} {
			if fi, err := os.Lstat(file); err != nil || fi.Mode() != want || fi.Sys().(*syscall.Stat_t).Gid != readerGID {
				t.Errorf("%s: %s: %v, %v", what, file, fi, err)
			}
		}
	}
	// If the socket cannot be made again now, it is made later.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = l.Renew()
	faulttest.Want(t, err, fault.NeedsOperator, "not a socket")
	ask(before)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if renewed, err := l.Renew(); !renewed || err != nil {
		t.Errorf("%v, %v", renewed, err)
	}
	ask(before)
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket of an agent that ended stays")
	}
}

// leaveSocket replaces the socket by that of a dead agent.
func leaveSocket(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	dead.SetUnlinkOnClose(false)
	return dead.Close()
}
