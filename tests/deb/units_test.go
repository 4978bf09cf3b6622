//go:build integration

// Package deb_test tries the Debian package: how it is built, what its units
// may do, and how it is installed, upgraded, removed and purged.
package deb_test

import (
	"os"
	"path/filepath"
	"testing"

	"hostler/tests/harness"
)

// The units are no more exposed than what they hold asks for: 10 is a plain
// root service. hostlerd runs maintainer scripts, the provisioner nothing.
func TestUnitExposure(t *testing.T) {
	for _, unit := range []struct {
		file, name, threshold string // threshold in tenths
	}{
		{"debian/hostler.hostlerd.service", "hostlerd.service", "70"},
		{"debian/hostler-provisioner@.service", "hostler-provisioner@lxd.service", "10"},
		{"debian/hostler-provisioner@.service", "hostler-provisioner@kvm.service", "10"},
	} {
		b, err := os.ReadFile(filepath.Join(harness.Root(t), unit.file))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), unit.name)
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := harness.Try(nil, "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+unit.threshold, file)
		if err != nil {
			t.Errorf("%s is more exposed than %s tenths: %v", unit.name, unit.threshold, err)
		}
		t.Log(lastLine(out))
	}
}
