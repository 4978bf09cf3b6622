package lxd_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hostler/initialisers/lxd"
	"hostler/internal/run"
)

// An interrupted installation, e.g. of another type's packages, is finished.
// It gets nothing installed beside an LXD that dpkg does not know.
func TestInterruptedInstallationBesideForeignLXD(t *testing.T) {
	for name, c := range map[string]struct {
		missing, halfway []string
		answers          bool
		want             []string // nil: nothing is installed
	}{
		"running":              {missing: []string{"lxd", "btrfs-progs"}, answers: true},
		"stopped":              {missing: []string{"lxd", "btrfs-progs"}},
		"hostler's, complete":  {answers: true},
		"hostler's, half-way":  {missing: []string{"lxd"}, halfway: []string{"lxd"}, want: []string{"lxd"}},
		"hostler's, in part":   {missing: []string{"btrfs-progs"}, answers: true, want: []string{"btrfs-progs"}},
		"hostler's, no daemon": {missing: []string{"lxd", "btrfs-progs"}, halfway: []string{"lxd"}, answers: true, want: []string{"lxd", "btrfs-progs"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.pkgs.missing, h.pkgs.halfway, h.pkgs.unfinished = c.missing, c.halfway, true
			file := h.p.Host(lxd.LXD.Program)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o755); err != nil {
				t.Fatal(err)
			}
			listen := func() { h.lxd.listen(debianDir(h.p)) }
			if c.answers {
				listen()
			} else {
				h.pkgs.installed = listen
				h.run.Handle("lxd", func(context.Context, run.Command) (run.Result, error) {
					listen()
					return run.Result{PID: os.Getpid()}, nil
				})
			}
			if err := h.initialise(); err != nil {
				t.Fatal(err)
			}
			if got := among(c.missing, h.pkgs.names); !slices.Equal(got, c.want) || h.pkgs.Unfinished() {
				t.Errorf("installed %q, unfinished %v", h.pkgs.names, h.pkgs.Unfinished())
			}
			if c.want == nil && len(h.pkgs.names) > 0 {
				t.Errorf("installed %q", h.pkgs.names)
			}
		})
	}
}

// An interrupted installation does not hide that LXD is silent.
func TestSilentAfterAnInterruptedInstallation(t *testing.T) {
	h := newHost(t)
	h.pkgs.unfinished = true
	h.lxd.listen(debianDir(h.p))
	if message, mend := lxd.New(h.opts).Silent(t.Context()); message+mend != "" {
		t.Errorf("with LXD: %q, %q", message, mend)
	}
	h.lxd.listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := h.lxd.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if message, _ := lxd.New(h.opts).Silent(t.Context()); message != "LXD does not answer" {
		t.Errorf("without LXD: %q", message)
	}
}
