//go:build integration && !long

package vm_test

import (
	"strings"
	"testing"

	"hostler/tests/harness"
)

// One machine goes through the subjects of the long scenarios: the installation, a
// first machine, a reboot, three power cuts (F11), and a guest of classic LXC. It is
// the same machine throughout, since emulated processors take long to boot.
func TestFromInstallationToPowerCuts(t *testing.T) {
	r := harness.HostRelease(t)
	d := runningOn(r)
	d.packages += "," + classic.packages
	m, web := firstMachineOn(t, baseDiskWith(t, r, d, provided))
	m.powerCuts(m.restart(web, func() {}), 3)

	const declaration = "/root/classic.yaml"
	m.write(declaration, "version: 1\nmachines:\n  classic: {type: lxc, image: busybox/1, memory: 64MiB}\n")
	m.sh("hostler apply -f " + declaration + " --wait --timeout 9m")
	m.limitChangesLive(declaration, "classic")
	m.outcome("all of it on kernel %s", strings.TrimSpace(m.sh("uname -r")))
}
