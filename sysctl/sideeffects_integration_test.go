//go:build integration

package sysctl_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/hostnet/nettest"
	"hostler/internal/paths"
	"hostler/sysctl"
)

// hardened is a namespace whose host forwards for a single link only and
// accepts no redirects, with a Manager of its parameters.
type hardened struct {
	t *testing.T
	n *nettest.Namespace
	p paths.Paths
	m *sysctl.Manager
}

func newHardened(t *testing.T) hardened {
	t.Helper()
	root := t.TempDir()
	h := hardened{t: t, n: nettest.New(t), p: paths.New(root, "", "", "")}
	for _, dir := range []string{filepath.Dir(h.p.SysctlDropIn()), h.p.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/proc", filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	h.m = sysctl.New(h.p, slog.New(slog.DiscardHandler))
	for _, link := range []string{"eth0", "eth1.7", "eth2"} {
		h.n.IP("link add " + link + " type bridge")
	}
	for _, setting := range []string{
		"ipv4/ip_forward=0", "ipv6/conf/all/forwarding=0", "ipv4/conf/all/accept_redirects=0",
		"ipv4/conf/eth0/forwarding=1", "ipv6/conf/eth1.7/forwarding=1", "ipv6/conf/default/forwarding=1",
	} {
		h.n.Sysctl("net/" + setting)
	}
	return h
}

func (h hardened) apply(settings ...sysctl.Setting) {
	h.t.Helper()
	if err := h.n.Do(func() error {
		_, err := h.m.Apply(h.t.Context(), "net", settings)
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

func (h hardened) look() string {
	h.t.Helper()
	return h.n.Run("/bin/sh", "-c", "cd /proc/sys/net; grep . ipv4/ip_forward ipv4/conf/*/accept_redirects ipv?/conf/*/forwarding")
}

var forwarding = []sysctl.Setting{{Name: "net/ipv4/ip_forward", Value: "1"}, {Name: "net/ipv6/conf/all/forwarding", Value: "1"}}

// I5: parameters that the kernel changes with forwarding have their former
// values after forwarding is off.
func TestParametersThatFollowForwarding(t *testing.T) {
	h := newHardened(t)
	before := h.look()
	for range 2 {
		h.apply(forwarding...)
		h.apply(forwarding...)
		if now := h.look(); strings.Contains(now, "forwarding:0") || !strings.Contains(now, "ip_forward:1") {
			t.Errorf("not all is forwarded:\n%s", now)
		}
		h.apply()
		if now := h.look(); now != before {
			t.Errorf("it was\n%s\nand is\n%s", before, now)
		}
	}
	if _, err := os.Stat(h.p.SysctlState()); !os.IsNotExist(err) {
		t.Errorf("something is still remembered: %v", err)
	}
}

// The host loses power after forwarding was switched off and before the other
// parameters were restored: the next agent restores them.
func TestParametersThatFollowForwardingAfterACrash(t *testing.T) {
	h := newHardened(t)
	before := h.look()
	h.apply(forwarding...)
	remembered, err := os.ReadFile(h.p.SysctlState())
	if err != nil {
		t.Fatal(err)
	}
	h.apply()
	h.n.Sysctl("net/ipv4/ip_forward=1")
	h.n.Sysctl("net/ipv4/ip_forward=0")
	h.n.Sysctl("net/ipv6/conf/all/forwarding=1")
	h.n.Sysctl("net/ipv6/conf/all/forwarding=0")
	if err := os.WriteFile(h.p.SysctlState(), remembered, 0o600); err != nil {
		t.Fatal(err)
	}
	h.n.IP("link del eth2")
	h.apply()
	for line := range strings.Lines(before) {
		if now := h.look(); !strings.Contains(line, "eth2") && !strings.Contains(now, line) {
			t.Errorf("no %q in\n%s", line, now)
		}
	}
}

// Values that another process set while the host forwarded stay.
func TestForeignParametersWhileForwarding(t *testing.T) {
	h := newHardened(t)
	h.apply(forwarding...)
	h.n.Sysctl("net/ipv4/conf/eth0/forwarding=0")
	h.n.Sysctl("net/ipv4/conf/all/accept_redirects=1")
	h.apply()
	now := h.look()
	for _, line := range []string{"ipv4/conf/eth0/forwarding:0\n", "ipv4/conf/all/accept_redirects:1\n", "ipv6/conf/eth1.7/forwarding:1\n"} {
		if !strings.Contains(now, line) {
			t.Errorf("no %q in\n%s", line, now)
		}
	}
}
