package lxd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// purge runs the part of the package's removal script that removes hostler's
// objects from the daemons, with the added environment variables.
func purge(t *testing.T, environment ...string) {
	t.Helper()
	script, err := os.ReadFile("../../debian/hostler.postrm")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(script), "  # What it made in LXD")
	part, _, found := strings.Cut(part, "  # What machines keep")
	if !found {
		t.Fatalf("the script has no part for LXD:\n%s", script)
	}
	c := exec.Command("sh", "-e", "-c", "#"+part)
	c.Env = append(os.Environ(), environment...)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the purge: %v: %s", err, out)
	}
}

// Ubuntu's /usr/sbin/lxc installs LXD's snap when it is called, so the purge
// calls a client only if its daemon has a socket.
func TestPurgeCallsNoClientWithoutDaemon(t *testing.T) {
	for _, has := range []string{"", "lxc", "incus"} {
		t.Run(has, func(t *testing.T) {
			bin, called := t.TempDir(), filepath.Join(t.TempDir(), "called")
			dirs := map[string]string{"lxc": t.TempDir(), "incus": t.TempDir()}
			for client, dir := range dirs {
				if err := os.WriteFile(filepath.Join(bin, client), []byte("#!/bin/sh\necho "+client+" >>"+called+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				if client == has {
					if err := unix.Mknod(filepath.Join(dir, "unix.socket"), unix.S_IFSOCK|0o600, 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			purge(t, "PATH="+bin+":"+os.Getenv("PATH"), "LXD_DIR="+dirs["lxc"], "INCUS_DIR="+dirs["incus"])
			calls, _ := os.ReadFile(called)
			for client := range dirs {
				if strings.Contains(string(calls), client) != (client == has) {
					t.Errorf("with the daemon of %q the purge calls %q", has, calls)
				}
			}
		})
	}
}
