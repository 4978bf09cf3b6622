//go:build integration

package vm_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"hostler/tests/harness"
)

// site is the declaration that the scenarios start from: a machine on a
// declared network, with storage that outlives a boot and storage that does
// not.
const (
	site     = "/root/site.yaml"
	siteYAML = `version: 1
networks:
  lan: {bridge: br-lan, addresses: [10.20.0.1/24], forwarding: true, nat: true, dhcp: true}
volumes:
  data: {provider: loop, size: 64MiB}
filesystems:
  www: {volume: data, type: ext4}
  scratch: {provider: tmpfs, size: 16MiB}
machines:
  web:
    type: lxd
    image: busybox/1
    memory: 64MiB
    networks: {eth0: {network: lan, address: 10.20.0.10/24}}
    storage:
      - {filesystem: www, path: /srv}
      - {filesystem: scratch, path: /scratch}
`
)

// A Debian machine gets the package, a first LXD machine with a network and
// storage, and a reboot: afterwards everything is there again as it was. The
// disk it leaves is what other scenarios start from.
func TestFirstMachineAndReboot(t *testing.T) {
	b := baseDisk(t, provided)
	m := newMachine(t, b, b.disk, payload(t, map[string]string{"hostler.deb": packageOfNow(t)}))
	m.boot()
	m.timed("the package installed", "tar -xf /dev/vdb -C /root && apt-get -qq -y install /root/hostler.deb </dev/null")
	m.write(site, siteYAML)
	m.timed("the first machine ready", "hostler apply -f "+site+" --wait --timeout 9m")
	before := m.settled([]string{site}, "web")
	m.outcome("installed by apt; the first LXD machine runs, with its network and storage")

	m.sh("hostler exec web -- sh -c 'echo kept >/srv/note && echo passing >/scratch/note'")
	m.off("reboot")
	harness.Run(t, "cp", m.disk(), m.disk()+".installed")
	m.boot()
	after := m.settled([]string{site}, "web")
	m.survived(before, after)
	m.inPlace()
	m.sh("hostler exec web -- sh -c 'test ! -e /scratch/note'")
	m.outcome("after a reboot the machine, its network and its storage are as declared, and the same instance")
	keepInstalled(t, m)
}

// inPlace checks what the declaration site says, from the host and from
// inside the machine.
func (m *machine) inPlace() {
	m.Helper()
	for what, script := range map[string]string{
		"the bridge's address":       "ip -4 -o addr show dev br-lan | grep -q 'inet 10.20.0.1/24'",
		"the machine's address":      "hostler exec web -- ip -4 addr show dev eth0 | grep -q 'inet 10.20.0.10/'",
		"the machine, from the host": "hostler exec web -- sh -c 'ip link show eth0 | grep -q UP'",
		"the kept file":              "test \"$(hostler exec web -- cat /srv/note)\" = kept",
		"the managed filesystem":     "hostler exec web -- mount | grep -q ' /srv type ext4'",
		"the tmpfs":                  "hostler exec web -- mount | grep -q ' /scratch type tmpfs'",
		"one loop device":            "test \"$(losetup -n -O BACK-FILE | grep -c /var/lib/hostler)\" = 1",
		"one table of the firewall":  "test \"$(nft list tables | grep -c hostler)\" = 1",
		"packages":                   "test -z \"$(dpkg --audit)\"",
	} {
		if _, err := m.try(script); err != nil {
			m.Errorf("%s: %v", what, err)
		}
	}
}

// survived compares instances before and after.
func (m *machine) survived(before, after map[string]instance) {
	m.Helper()
	for name, b := range before {
		if a, there := after[name]; there && !a.same(b) {
			m.Errorf("%s was %+v and is %+v", name, b, a)
		}
	}
}

var (
	once sync.Once
	now  string
)

// packageOfNow builds the package of this clone once.
func packageOfNow(t *testing.T) string {
	t.Helper()
	once.Do(func() {
		dir := cache(t, "packages")
		fresh(t, dir)
		now = dir + "/hostler.deb"
		if err := os.Rename(deb(t, ""), now); err != nil {
			now = ""
			t.Fatal(err)
		}
	})
	if now == "" {
		t.Fatal("there is no package")
	}
	return now
}

// installedKey tells the disks apart that different packages leave.
func installedKey(t *testing.T, b base) string {
	t.Helper()
	return fmt.Sprintf("installed-%s-%s.qcow2", b.key, digest(t, packageOfNow(t)))
}

// keepInstalled gives the disk with which the machine went down to other
// scenarios, in the place of that of another package.
func keepInstalled(t *testing.T, m *machine) {
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
	if err := os.Rename(m.disk()+".installed", cache(t, installedKey(t, m.base))); err != nil {
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
