//go:build integration && long

package vm_test

import (
	"strings"
	"testing"

	"hostler/tests/harness"
)

// A host with AppArmor, cgroup v2 and systemd gets a first machine of classic
// LXC. The guest is confined, unprivileged, and outlives the agent and a reboot.
// Then the power goes at random moments while machines come, change and go (F11).
func TestPowerCutsOfLXC(t *testing.T) {
	b := baseDiskWith(t, harness.HostRelease(t), classic, provided)
	m := newMachine(t, b, b.disk, payload(t, map[string]string{"hostler.deb": harness.Package(t, "")}))
	web := m.install()
	m.confinedGuest("web")
	m.confined("hostler-provisioner@lxc.service", 15)
	web = m.restart(web, func() {})
	m.confinedGuest("web")
	m.limitChangesLive(site, "web")
	m.powerCuts(web, cuts)
}

// confinedGuest checks that AppArmor enforces the profile of guests, that the
// guest's root is no root of the host, and that the guest reaches nothing of
// what the profile denies.
func (m *machine) confinedGuest(name string) {
	m.Helper()
	out := m.sh(`grep ^lxc-hostler /sys/kernel/security/apparmor/profiles; pid=$(lxc-info -n ` + name + ` -p -H); cat /proc/$pid/attr/current; stat -c 'root is %u' /proc/$pid; grep -E '^(NoNewPrivs|Seccomp):' /proc/$pid/status`)
	for _, want := range []string{"lxc-hostler (enforce)\nlxc-hostler (enforce)\n", "NoNewPrivs:\t0\n", "Seccomp:\t2\n"} {
		if !strings.Contains(out, want) {
			m.Errorf("%s: no %q in\n%s", name, want, out)
		}
	}
	if strings.Contains(out, "root is 0\n") {
		m.Errorf("%s: its root is the host's:\n%s", name, out)
	}
	denied := m.sh("hostler exec " + name + " -- sh -c 'cat /sys/kernel/debug/* /sys/firmware/* /proc/kcore 2>&1 | head -c 200; cat /proc/self/attr/current; echo 1 2>/dev/null >/proc/sysrq-trigger && echo written; true'")
	if !strings.Contains(denied, "lxc-hostler (enforce)") || strings.Contains(denied, "written") {
		m.Errorf("%s: inside: %s", name, denied)
	}
	m.outcome("AppArmor enforces lxc-hostler on %s, also on what exec starts", name)
}
