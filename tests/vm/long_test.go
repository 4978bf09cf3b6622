//go:build integration && long

package vm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// cuts is how often the power goes.
const cuts = 30

// Other scenarios start from the disk that this scenario leaves.
func TestFirstMachineAndReboot(t *testing.T) {
	m, web := firstMachine(t)
	installed := m.disk() + ".installed"
	m.restart(web, func() { harness.Run(t, "cp", m.disk(), installed) })
	keepInstalled(t, m.base, installed)
}

// The power goes at random moments while machines come, change and go (F11).
func TestPowerCuts(t *testing.T) {
	m := newInstalled(t, "")
	m.boot()
	m.powerCuts(m.settled([]string{site}, "web"), cuts)
}

// installedKey tells the disks apart that different packages leave.
func installedKey(t *testing.T, b base) string {
	t.Helper()
	return fmt.Sprintf("installed-%s-%s.qcow2", b.key, digest(t, harness.Package(t, "")))
}

// keepInstalled gives a disk to other scenarios, in the place of that of
// another package.
func keepInstalled(t *testing.T, b base, disk string) {
	t.Helper()
	if t.Failed() {
		return
	}
	entries, _ := os.ReadDir(cache(t, ""))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "installed-") {
			_ = os.Remove(cache(t, e.Name()))
		}
	}
	if err := os.Rename(disk, cache(t, installedKey(t, b))); err != nil {
		t.Fatal(err)
	}
}

// newInstalled prepares a machine on which the declaration site is carried
// out. Where no scenario of this clone's package left its disk, it is made.
func newInstalled(t *testing.T, payload string) *machine {
	t.Helper()
	b := baseDisk(t, provided)
	disk := cache(t, installedKey(t, b))
	if _, err := os.Stat(disk); err != nil && !t.Run("first machine", TestFirstMachineAndReboot) {
		t.FailNow()
	}
	return newMachine(t, b, disk, payload)
}
