//go:build integration && long

package vm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/harness"
)

// virtualizing adds to provided what hostler installs for KVM.
const virtualizing = provided + ",libvirt-daemon-system,libvirt-clients,qemu-utils,iptables,polkitd,qemu-system-x86,seabios,ipxe-qemu"

const mixedYAML = `version: 1
machines:
  web: {type: lxd, image: busybox/1}
  db: {type: kvm, image: "file:/root/tiny.qcow2#sha256=%s", cpus: 1, memory: 512MiB}
`

// A container and a KVM guest run beside each other, each type's provisioner
// in a unit of its own that may do next to nothing. The guest's process
// outlives the agent's units; both machines are there after a reboot, and
// nothing is left of the guest when it is no longer declared.
func TestKVMUnderSystemd(t *testing.T) {
	b := baseDisk(t, virtualizing)
	disk := kvmtest.Tiny(t)
	_, sum, _ := strings.Cut(kvmtest.TinyReference(t), "sha256=")
	m := newMachine(t, b, b.disk, payload(t, map[string]string{"hostler.deb": harness.Package(t, ""), "tiny.qcow2": disk}))
	m.boot()
	m.timed("the package installed", "tar -xf /dev/vdb -C /root && apt-get -qq -y install /root/hostler.deb </dev/null")
	m.write(site, fmt.Sprintf(mixedYAML, sum))
	m.timed("a container and a guest ready", "hostler apply -f "+site+" --wait --timeout 9m")
	t.Log(m.sh("hostler doctor | grep -i kvm; hostler get machines; virsh -q list --all"))
	uuid, pid := m.sh("virsh domuuid db"), m.sh("cat /run/libvirt/qemu/db.pid")
	m.asMixed()
	for _, unit := range []string{"hostler-provisioner@kvm.service", "hostler-provisioner@lxd.service"} {
		m.confined(unit, 10)
	}

	m.sh("systemctl kill -s KILL hostlerd hostler-provisioner@kvm")
	m.asMixed()
	m.sh("systemctl restart hostlerd hostler-provisioner@kvm")
	m.asMixed()
	if now := m.sh("cat /run/libvirt/qemu/db.pid"); now != pid {
		t.Errorf("the guest's process is %s, it was %s", now, pid)
	}
	m.outcome("the guest's process outlives the agent and its provisioner, killed and restarted")

	m.reboot()
	m.asMixed()
	if now := m.sh("virsh domuuid db"); now != uuid {
		t.Errorf("after the reboot the domain is %s, it was %s", now, uuid)
	}
	m.outcome("after a reboot the guest runs, and is the same domain")

	m.sh("hostler delete -f " + site + " --wait --timeout 5m")
	if left := strings.TrimSpace(m.sh("virsh -q list --all; ls /var/lib/libvirt/images | grep -v ^hostler-image-; lxc list -f csv; true")); left != "" {
		t.Errorf("left behind: %s", left)
	}
	harness.Wait(t, "the end of the provisioners", time.Minute, func() error {
		if out, err := m.try("! systemctl is-active hostler-provisioner@kvm hostler-provisioner@lxd"); err != nil {
			return fmt.Errorf("%s%w", out, err)
		}
		return nil
	})
	m.outcome("deleted: no domain and no file of it is left, and no provisioner runs")
}

// asMixed waits until both machines are ready, with one domain and no plan.
func (m *machine) asMixed() {
	m.Helper()
	harness.Wait(m, "both machines", settleLimit, func() error {
		out, err := m.try("hostler plan -q -f " + site + " && hostler wait declaration/site --timeout 1m && systemctl is-active hostler-provisioner@kvm && systemctl is-active hostler-provisioner@lxd && virsh -q list --all && lxc list -f csv -c ns")
		if err != nil {
			return err
		}
		if strings.Count(out, "\n") < 4 || strings.Count(out, " db ") != 1 || !strings.Contains(out, "running") || !strings.Contains(out, "web,RUNNING") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// confined checks that systemd itself rates a running unit no more exposed than
// a number of tenths, where 100 is a plain root service.
func (m *machine) confined(unit string, tenths int) {
	m.Helper()
	out := m.sh(fmt.Sprintf("systemctl is-active -q %[1]s && systemd-analyze security --no-pager --threshold=%[2]d %[1]s", unit, tenths))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	m.outcome("running under systemd: %s", strings.TrimSpace(lines[len(lines)-1]))
}
