//go:build integration && !long

package vm_test

import "testing"

// One Debian machine goes through the subjects of the long scenarios: the
// installation, a first machine, a reboot, three power cuts (F11). It is the same
// machine throughout, since emulated processors take long to boot.
func TestFromInstallationToPowerCuts(t *testing.T) {
	m, web := firstMachine(t)
	m.powerCuts(m.restart(web, func() {}), 3)
}
