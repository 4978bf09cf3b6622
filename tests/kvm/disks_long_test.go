//go:build integration && long

package kvm

import (
	"slices"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// K2: a disk of each release boots from the host's mirrors to a guest that
// cloud-init has set up.
func TestDisksBoot(t *testing.T) {
	mirror := func(release string) string {
		t.Setenv("HOSTLER_TEST_RELEASE", release)
		fields := strings.Fields(harness.HostRelease(t).Mirrors(t)[0])
		return fields[slices.IndexFunc(fields, func(f string) bool { return strings.Contains(f, "://") })]
	}
	debian, ubuntu := mirror("debian/13"), mirror("ubuntu/24.04")
	for _, release := range []string{"debian/12", "debian/13", "ubuntu/24.04", "ubuntu/26.04"} {
		t.Run(release, func(t *testing.T) {
			w := open(t)
			w.Configure("apt: {mirror: \"" + debian + "\", ubuntu-mirror: \"" + ubuntu + "\"}\n")
			w.a.Start()
			w.a.Run("apply", "-f", w.a.File("site", "version: 1\nmachines:\n  vm: {type: kvm, image: "+release+", memory: 1GiB}\n"), "--wait", "--timeout", "20m")
			got := w.a.Run("exec", "vm", "--", "sh", "-c", ". /etc/os-release; echo $ID/$VERSION_ID; cloud-init status; df -m / | tail -n 1; uname -r; readlink /vmlinuz")
			if t.Log(got); !strings.HasPrefix(got, release+"\nstatus: done\n") {
				t.Errorf("the guest is %s", got)
			}
			w.a.Run("delete", "declaration/site", "--wait")
		})
	}
}
