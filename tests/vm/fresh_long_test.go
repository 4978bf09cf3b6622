//go:build integration && long

package vm_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// unattended stands in for unattended-upgrades: it holds dpkg's lock from
// before hostlerd starts, under the same name, until /run/release exists. The
// lock is a POSIX record lock, as dpkg's own.
const (
	unattended = `#!/usr/bin/perl
use strict; use Fcntl;
open(my $lock, ">>", "/var/lib/dpkg/lock-frontend") or die;
my $want = pack("s s x4 l! l! i x4", F_WRLCK, 0, 0, 0, 0);
fcntl($lock, F_SETLK, $want) or die "the lock is held";
open(my $told, ">", "/run/locked"); close($told);
sleep 1 until -e "/run/release";
`
	unattendedUnit = `[Unit]
DefaultDependencies=no
After=local-fs.target
Before=hostlerd.service
[Service]
ExecStart=/usr/local/bin/unattended-upgrade
ExecStartPost=/bin/sh -c 'until test -e /run/locked; do sleep 0.2; done'
[Install]
WantedBy=multi-user.target
`
)

// A bare Debian machine gets the package by apt with all that it recommends,
// and the tests of the package run as autopkgtest would run them: for the
// second of them hostler installs LXD from the archive.
func TestFreshInstall(t *testing.T) {
	b := baseDisk(t, bare)
	tests := filepath.Join(harness.Root(t), "debian", "tests")
	m := newMachine(t, b, b.disk, payload(t, map[string]string{
		"hostler.deb": harness.Package(t, ""), "smoke": filepath.Join(tests, "smoke"), "first-machine": filepath.Join(tests, "first-machine"),
	}))
	m.boot()
	m.timed("the package installed", "apt-get -qq update && tar -xf /dev/vdb -C /root && apt-get -qq -y install /root/hostler.deb </dev/null")
	m.sh("sh /root/smoke")
	m.outcome("the package is installed on a bare Debian by apt; its test smoke passes")
	m.sh("! command -v lxd")
	m.timed("first-machine", "sh /root/first-machine")
	m.sh("test -z \"$(dpkg --audit)\"")
	m.outcome("its test first-machine passes: LXD comes from the archive, a machine comes and goes")
}

// A declaration waits in conf.d when the machine boots, LXD is missing, and
// unattended-upgrades has dpkg's lock (F25, I13). The agent says who holds it, leaves it alone, and goes on by itself.
func TestDpkgLockedAtBoot(t *testing.T) {
	b := baseDisk(t, provided)
	m := newMachine(t, b, b.disk, payload(t, map[string]string{"hostler.deb": harness.Package(t, "")}))
	m.boot()
	m.sh("tar -xf /dev/vdb -C /root && dpkg --purge lxd && apt-get -qq -y install /root/hostler.deb </dev/null")
	m.write("/usr/local/bin/unattended-upgrade", unattended)
	m.write("/etc/systemd/system/unattended.service", unattendedUnit)
	m.sh("chmod +x /usr/local/bin/unattended-upgrade && systemctl -q enable unattended && systemctl stop hostlerd")
	m.write("/etc/hostler/conf.d/site.yaml", m.siteYAML())
	m.reboot()
	harness.Wait(t, "the holder's name", settleLimit, func() error {
		out, err := m.try("hostler status; hostler get machines -o csv")
		if err != nil || !strings.Contains(out, "unattended-upgrade") || !strings.Contains(out, "pending") {
			return fmt.Errorf("%s%w", out, err)
		}
		return nil
	})
	t.Log(m.sh("hostler status; hostler get machines; systemctl is-active hostlerd unattended"))
	// Held on for longer than one try takes.
	m.sh("for i in $(seq 30); do systemctl is-active -q unattended && systemctl is-active -q hostlerd || exit 1; sleep 1; done; if command -v lxd; then exit 1; fi; test -z \"$(dpkg --audit)\"")
	m.sh("systemctl -q disable unattended; touch /run/release")
	start := time.Now()
	m.settled([]string{"/etc/hostler/conf.d/site.yaml"}, "web")
	m.sh("command -v lxd && test -z \"$(dpkg --audit)\"")
	m.outcome("dpkg's lock held at boot: the agent names the holder and waits; %.0f s after its end the package is installed and the machine runs", time.Since(start).Seconds())
}
