//go:build integration && long

package vm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// upgradeLimit bounds the upgrade of a release on an emulated processor.
const upgradeLimit = 90 * time.Minute

// A host of Debian 12 is upgraded to Debian 13 as its release notes say, while a
// machine runs: the machine stays the same instance, and after the reboot into
// the new kernel everything is as declared.
func TestUpgradeOfTheRelease(t *testing.T) {
	t.Setenv("HOSTLER_TEST_RELEASE", "debian/13")
	next := harness.HostRelease(t)
	t.Setenv("HOSTLER_TEST_RELEASE", "debian/12")
	m := newInstalled(t, "")
	m.boot()
	before := m.settled([]string{site}, "web")
	m.sh("hostler exec web -- sh -c 'echo kept >/srv/note'")
	m.write("/etc/apt/sources.list", strings.Join(next.Mirrors(t), "\n")+"\n")
	m.sh("rm -f /etc/apt/sources.list.d/* && apt-get -qq update && apt-get clean")
	start := time.Now()
	m.upgrade()
	after := m.settled([]string{site}, "web")
	m.survived(before, after)
	if b, a := before["web"].PID, after["web"].PID; a != b {
		t.Errorf("the upgrade restarted the machine: its init has PID %d, it had %d", a, b)
	}
	m.inPlace()
	m.outcome("apt full-upgrade to Debian 13 in %.0f s: the machine runs on, everything is as declared", time.Since(start).Seconds())

	kernel := strings.TrimSpace(m.sh("apt-get clean; ls -v /boot | sed -n 's/^vmlinuz-//p' | tail -n 1"))
	m.off("reboot")
	m.bootKernel(kernel)
	m.boot()
	if out := m.sh("uname -r; . /etc/os-release; echo $VERSION_ID"); out != kernel+"\n13\n" {
		t.Errorf("after the upgrade the host is %q, want kernel %s of Debian 13", out, kernel)
	}
	after = m.settled([]string{site}, "web")
	m.survived(before, after)
	m.inPlace()
	m.outcome("after the reboot with kernel %s the machine, its network and its storage are as declared, and the same instance", kernel)
}

// upgrade runs apt full-upgrade as a unit of its own, because the upgrade
// restarts the guest agent, whose commands then end or lose their results.
func (m *machine) upgrade() {
	m.Helper()
	m.sh(`systemd-run --quiet --unit=release-upgrade --setenv=DEBIAN_FRONTEND=noninteractive --setenv=LC_ALL=C.UTF-8 sh -c '
		apt-get -qq -y -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold full-upgrade </dev/null >/root/upgrade.log 2>&1 && touch /root/upgrade.ok
		touch /root/upgrade.end'`)
	harness.Wait(m, "the end of apt full-upgrade", upgradeLimit, func() error {
		if err := m.guest.sync(time.Minute); err != nil {
			return err
		}
		_, err := m.guest.run("sleep 10; test -e /root/upgrade.end", commandLimit) // each look costs time of the emulated processor
		return err
	})
	m.sh("test -e /root/upgrade.ok || { tail -n 30 /root/upgrade.log; exit 1; }")
}

// bootKernel takes the kernel of the next boots from the VM's own disk, as its
// boot loader would. The VM is off.
func (m *machine) bootKernel(version string) {
	m.Helper()
	image := filepath.Join(m.dir, "disk.img")
	harness.Run(m, "qemu-img", "convert", "-O", "raw", m.disk(), image)
	for name, file := range map[string]*string{"vmlinuz": &m.base.kernel, "initrd.img": &m.base.initrd} {
		*file = filepath.Join(m.dir, name)
		harness.Run(m, "debugfs", "-R", fmt.Sprintf("dump /boot/%s-%s %s", name, version, *file), image)
		if info, err := os.Stat(*file); err != nil || info.Size() == 0 {
			m.Fatalf("cannot read %s of kernel %s: %v", name, version, err)
		}
	}
	harness.Run(m, "rm", image)
}
