//go:build integration && !long

package vm_test

import "testing"

// A Debian machine lives through what the long scenarios try one by one: the
// installation, a first machine, a reboot, three power cuts (F11). It is one
// machine all the way, since emulated processors take long to boot.
func TestFromInstallationToPowerCuts(t *testing.T) {
	m, web := firstMachine(t)
	m.powerCuts(m.restart(web, func() {}), 3)
}
