package lxd

import (
	"os"
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/packaging"
)

func TestPackages(t *testing.T) {
	names, err := LXD.packagesOn(packaging.Release{ID: "debian", Version: "12"})
	if err != nil || !slices.Contains(names, "lxd") {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := LXD.packagesOn(packaging.Release{ID: "ubuntu", Version: "24.04"}); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "snap install lxd") {
		t.Errorf("got %v", err)
	}
	if _, err := LXD.packagesOn(packaging.Release{}); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("got %v", err)
	}
}

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		release string
		advises bool
	}{
		{LXD, "ID=debian\nVERSION_ID=12\n", false},
		{LXD, "ID=debian\nVERSION_ID=13\n", true},
		{LXD, "ID=debian\n", true}, // testing
		{LXD, "ID=ubuntu\nVERSION_ID=26.04\n", false},
		{Incus, "ID=debian\nVERSION_ID=13\n", false},
	} {
		p := paths.New(t.TempDir(), "", "", "")
		if err := os.MkdirAll(p.Host("/etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.OSRelease(), []byte(c.release), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := New(Options{Dialect: c.dialect, Paths: p}).Advice(); (got != "") != c.advises || c.advises && !strings.Contains(got, "type: incus") {
			t.Errorf("%s on %q: %q", c.dialect.Name, c.release, got)
		}
	}
}
