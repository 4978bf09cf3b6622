//go:build integration && long

package vm_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"hostler/tests/harness"
)

// fill takes all free space of the disk, the part kept for root included.
const fill = `i=0
for size in 1G 256M 64M 16M 4M 1M 256K 64K 16K 4K; do
  while fallocate -l $size /filler.$i 2>/dev/null; do i=$((i+1)); done; rm -f /filler.$i; i=$((i+1))
done
df -B1 --output=avail / | tail -1`

// The operator must read these texts when the disk is full, from an operation
// and from doctor.
var (
	aboutSpace = regexp.MustCompile(`(?i)no space|are free|disk.*full|full.*disk`)
	warned     = regexp.MustCompile(`(?m)^(warning|error) +space`)
)

// The disk fills up (F9, I7, I16): the machines run on, the agent reports the full
// disk and loses nothing, and continues by itself once there is space.
func TestDiskFull(t *testing.T) {
	m := newInstalled(t, "")
	m.boot()
	before := m.settled([]string{site}, "web")
	m.write(churn, m.declare(map[string]int{"a": 32}))
	m.write("/root/later.yaml", m.declare(map[string]int{"b": 32}))
	t.Logf("free after filling: %s", m.sh(fill))

	out, err := m.try("hostler apply --allow destroy -f " + churn)
	acknowledged := err == nil
	t.Logf("apply on the full disk, acknowledged %v:\n%s%v", acknowledged, out, err)
	if !acknowledged && !aboutSpace.MatchString(fmt.Sprint(err)) {
		t.Errorf("the refusal does not speak of space: %v", err)
	}
	doctor, err := m.try("hostler doctor --strict")
	t.Logf("doctor:\n%s%v", doctor, err)
	if !warned.MatchString(doctor) || err == nil {
		t.Error("doctor finds nothing wrong with a full disk")
	}
	if acknowledged {
		harness.Wait(t, "the reason in the status", settleLimit, func() error {
			if out, err := m.try("hostler show machine/a"); err != nil || !aboutSpace.MatchString(out) {
				return fmt.Errorf("%s%w", out, err)
			}
			return nil
		})
	}
	status := m.sh("hostler get machines; hostler status; systemctl is-active hostlerd && systemctl is-active hostler-provisioner@lxd")
	t.Log(status)
	full, err := m.look(site)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := full.instances["web"], before["web"]; a.PID != b.PID || !a.Running || full.machines["web"].Status != "running" {
		t.Errorf("web was %+v and is %+v, %+v", b, a, full.machines["web"])
	}
	m.sh("hostler exec web -- cat /proc/uptime")
	m.outcome("disk full: the agent answers, says so, and the machine runs on (apply acknowledged: %v)", acknowledged)

	m.sh("rm -f /filler.*")
	start := time.Now()
	if !acknowledged {
		m.sh("hostler apply --allow destroy -f " + churn)
	}
	after := m.settled([]string{site, churn}, "web", "a")
	m.survived(before, after)
	m.sh("hostler apply -f /root/later.yaml --wait --timeout 5m && hostler doctor")
	m.outcome("space freed: everything is as declared after %.0f s, and further machines are made", time.Since(start).Seconds())

	m.reboot()
	m.settled([]string{site, churn, "/root/later.yaml"}, "web", "a", "b")
	m.outcome("and after a reboot")
}
