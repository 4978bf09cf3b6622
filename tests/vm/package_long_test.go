//go:build integration && long

package vm_test

import (
	"os"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// The package is upgraded, downgraded, removed, installed again and purged
// while a machine runs: its init keeps its PID, and after each step everything
// is as declared, over a reboot too (F34).
func TestUpgradeDowngradeRemovePurge(t *testing.T) {
	next := harness.Package(t, "+1")
	m := newInstalled(t, payload(t, map[string]string{"hostler.deb": harness.Package(t, ""), "next.deb": next}))
	m.boot()
	before := m.settled([]string{site}, "web")
	m.sh("tar -xf /dev/vdb -C /root && hostler exec web -- sh -c 'echo kept >/srv/note'")
	version := func() string {
		return m.sh("dpkg-query -W -f '${Version}' hostler; echo; hostler version; for u in hostlerd hostler-provisioner@lxd; do readlink /proc/$(systemctl show -P MainPID $u)/exe; done")
	}
	unharmed := func(what string) {
		t.Helper()
		after := m.settled([]string{site}, "web")
		m.survived(before, after)
		if b, a := before["web"].PID, after["web"].PID; a != b {
			t.Errorf("%s: the machine's init has PID %d, it had %d", what, a, b)
		}
		m.inPlace()
		m.outcome("%s: the machine runs on, everything is as declared", what)
	}
	apt := func(command string) {
		t.Helper()
		m.timed(command, "apt-get -qq -y "+command+" </dev/null")
	}

	apt("install /root/next.deb")
	unharmed("upgrade")
	if out := version(); strings.Count(out, "+1") < 2 || strings.Contains(out, "(deleted)") {
		t.Errorf("after the upgrade:\n%s", out)
	}
	m.reboot()
	after := m.settled([]string{site}, "web")
	m.survived(before, after)
	m.inPlace()
	before = after
	m.outcome("reboot after the upgrade: everything is as declared")

	apt("--allow-downgrades install /root/hostler.deb")
	unharmed("downgrade")
	if out := version(); strings.Contains(out, "+1") || strings.Contains(out, "(deleted)") {
		t.Errorf("after the downgrade:\n%s", out)
	}
	m.write(churn, m.declare(map[string]int{"a": 32}))
	m.sh("hostler apply --allow destroy -f " + churn + " --wait --timeout 5m && hostler delete -f " + churn + " --wait --timeout 5m")
	m.outcome("after the downgrade a machine is made and removed")

	apt("remove hostler")
	m.sh("test ! -e /usr/bin/hostlerd && test -d /var/lib/hostler && ! systemctl is-active -q hostlerd && ! systemctl is-active -q hostler-provisioner@lxd")
	apt("install /root/hostler.deb")
	unharmed("removed and installed again")

	apt("purge hostler")
	// What serves the machines' network goes on in hostlerd's control group,
	// which is why systemd keeps that name, as of a unit that is not found.
	left := m.sh("systemctl daemon-reload; for f in /etc/hostler /run/hostler /etc/sysctl.d/60-hostler.conf; do ! test -e $f || echo $f; done; getent passwd hostler-lxd; getent group hostler hostler-admin; systemctl list-unit-files --no-legend 'hostler*'; systemctl list-units --all --no-legend 'hostler*' | grep -v 'not-found inactive dead'; true")
	if strings.TrimSpace(left) != "" {
		t.Errorf("purge leaves:\n%s", left)
	}
	pid := strings.TrimSpace(m.sh("lxc query /1.0/instances/web/state | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p'"))
	if pid == "" || pid == "0" {
		t.Error("the machine does not run after the purge")
	}
	if note, err := m.try("lxc exec web -- cat /srv/note"); err != nil || strings.TrimSpace(note) != "kept" {
		t.Errorf("the machine's data after the purge: %q, %v", note, err)
	}
	m.outcome("purge leaves no file, account or unit, and the machine with its data")
	_ = os.Remove(next)
}
