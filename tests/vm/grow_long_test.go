//go:build integration && long

package vm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// A volume and the ext4 on it grow under a machine that writes, which a host
// may only do that has CAP_SYS_RESOURCE; shrinking is refused.
func TestGrowAsTheMachineWrites(t *testing.T) {
	m := newInstalled(t, "")
	m.boot()
	before := m.settled([]string{site}, "web")
	const size = "hostler exec web -- df -m /srv | tail -1"
	small := m.sh(size)
	m.sh("hostler exec web -- sh -c '(i=0; while :; do i=$((i+1)); echo $i >>/srv/written || exit; done) >/dev/null 2>&1 & echo $! >/tmp/writer'")
	m.write(site, strings.Replace(m.siteYAML(), "size: 64MiB", "size: 160MiB", 1))
	m.timed("grown", "hostler apply -f "+site+" --wait --timeout 5m && hostler wait filesystem/www --timeout 5m")
	large := m.sh(size)
	if fields := strings.Fields(large); len(fields) < 2 || atLeast(fields[1], 130) != nil {
		t.Errorf("/srv is %s", large)
	}
	// It never stopped, and what it wrote is whole.
	wrote := func() int {
		n, _ := strconv.Atoi(strings.TrimSpace(m.sh("hostler exec web -- sh -c 'kill -0 $(cat /tmp/writer) && tail -n 2 /srv/written | head -n 1'")))
		return n
	}
	first := wrote()
	harness.Wait(t, "the writer", commandLimit, func() error { return atLeast(fmt.Sprint(wrote()), first+1) })
	m.sh("hostler exec web -- sh -c 'kill $(cat /tmp/writer)'")
	after := m.settled([]string{site}, "web")
	m.survived(before, after)
	if a, b := after["web"].PID, before["web"].PID; a != b {
		t.Errorf("the machine's init has PID %d, it had %d", a, b)
	}
	m.write(site, m.siteYAML())
	if out, err := m.try("hostler apply -f " + site); err == nil || !strings.Contains(fmt.Sprint(err), "cannot shrink") {
		t.Errorf("shrinking: %s%v", out, err)
	}
	m.outcome("volume and ext4 grow live while the machine writes: %s is %s; shrinking is refused", strings.TrimSpace(small), strings.TrimSpace(large))
}

func atLeast(number string, least int) error {
	if n, err := strconv.Atoi(number); err != nil || n < least {
		return fmt.Errorf("%s is less than %d, or none: %w", number, least, err)
	}
	return nil
}
