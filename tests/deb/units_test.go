//go:build integration

// Package deb_test tests the Debian package: its build, the rights of its units,
// and its installation, upgrade, removal and purge.
package deb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// The exposure of each unit is no higher than its rights require: 10 is a plain
// root service.
func TestUnitExposure(t *testing.T) {
	for _, unit := range []struct {
		file, dropIn, name, threshold string // threshold in tenths
	}{
		{"debian/hostler.hostlerd.service", "", "hostlerd.service", "50"},
		{"debian/hostler-provisioner@.service", "", "hostler-provisioner@lxd.service", "10"},
		{"debian/hostler-provisioner@.service", "", "hostler-provisioner@incus.service", "10"},
		{"debian/hostler-provisioner@.service", "", "hostler-provisioner@kvm.service", "10"},
		{"debian/hostler-provisioner@.service", "debian/provisioner-lxc.conf", "hostler-provisioner@lxc.service", "15"},
	} {
		b, err := os.ReadFile(filepath.Join(harness.Root(t), unit.file))
		if err != nil {
			t.Fatal(err)
		}
		// Later lines of the drop-in override the unit's.
		if unit.dropIn != "" {
			more, err := os.ReadFile(filepath.Join(harness.Root(t), unit.dropIn))
			if err != nil {
				t.Fatal(err)
			}
			b = append(append(b, '\n'), more...)
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

// F1: however often and quickly a process is killed, it is started again; with
// systemd's own limit it would stay down after the fifth time in ten seconds.
func TestF1UnitsAreStartedAgainWithoutEnd(t *testing.T) {
	for _, name := range []string{"hostler.hostlerd.service", "hostler-provisioner@.service"} {
		b, err := os.ReadFile(filepath.Join(harness.Root(t), "debian", name))
		if err != nil {
			t.Fatal(err)
		}
		section, seen := "", map[string]bool{}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") {
				section = line
			}
			seen[section+line] = true
		}
		if !seen["[Unit]StartLimitIntervalSec=0"] {
			t.Errorf("%s: systemd gives up when it ends too often", name)
		}
		if !seen["[Service]Restart=always"] && !seen["[Service]Restart=on-failure"] {
			t.Errorf("%s: one that is killed stays down", name)
		}
	}
}

// No request and no child takes the agent's memory and tasks without end.
func TestTheAgentsUnitHasLimits(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(harness.Root(t), "debian/hostler.hostlerd.service"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Environment=GOMEMLIMIT=512MiB", "MemoryHigh=2G", "TasksMax=4096", "OOMPolicy=continue"} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the unit does not say %s", line)
		}
	}
}

// LXD kills, when it starts, the processes whose numbers it once wrote down,
// and after the power was cut those are numbers of others: they are forgotten
// while the host boots, and at no other time.
func TestStalePIDsAreRemovedAtBoot(t *testing.T) {
	root := t.TempDir()
	conf := filepath.Join(root, "usr/lib/tmpfiles.d/hostler.conf")
	harness.Run(t, "install", "-D", filepath.Join(harness.Root(t), "debian/hostler.tmpfiles"), conf)
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nhostler:x:998:\nhostler-admin:x:997:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	network := filepath.Join(root, "var/lib/lxd/networks/lxdbr0")
	if err := os.MkdirAll(network, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dnsmasq.pid", "forkdns.pid", "dnsmasq.leases"} {
		if err := os.WriteFile(filepath.Join(network, name), []byte("pid: 7\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, boot := range []bool{false, true} {
		args := []string{"--remove", "--root=" + root}
		if boot {
			args = append(args, "--boot")
		}
		if out, err := exec.Command("systemd-tmpfiles", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for name, stays := range map[string]bool{"dnsmasq.pid": !boot, "forkdns.pid": !boot, "dnsmasq.leases": true} {
			if _, err := os.Stat(filepath.Join(network, name)); (err == nil) != stays {
				t.Errorf("boot %v, %s: %v", boot, name, err)
			}
		}
	}
}
