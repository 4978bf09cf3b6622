//go:build integration

package vm_test

import (
	"regexp"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// site is the declaration that the scenarios start from: a machine on a
// declared network, with storage that outlives a boot and storage that does
// not.
const (
	site         = "/root/site.yaml"
	siteTemplate = `version: 1
networks:
  lan: {bridge: br-lan, addresses: [10.20.0.1/24], forwarding: true, nat: true, dhcp: true}
volumes:
  data: {provider: loop, size: 64MiB}
filesystems:
  www: {volume: data, type: ext4}
  scratch: {provider: tmpfs, size: 16MiB}
machines:
  web:
    type: TYPE
    image: busybox/1
    memory: 64MiB
    networks: {eth0: {network: lan, address: 10.20.0.10/24}}
    storage:
      - {filesystem: www, path: /srv}
      - {filesystem: scratch, path: /scratch}
`
)

// siteYAML is the declaration site, with machines of the VM's daemon.
func (m *machine) siteYAML() string {
	return strings.Replace(siteTemplate, "TYPE", m.base.daemon.kind, 1)
}

// firstMachine is a VM that gets the package and a first machine with a network
// and storage.
func firstMachine(t *testing.T) (m *machine, web map[string]instance) {
	t.Helper()
	return firstMachineOn(t, baseDisk(t, provided))
}

func firstMachineOn(t *testing.T, b base) (m *machine, web map[string]instance) {
	t.Helper()
	m = newMachine(t, b, b.disk, payload(t, map[string]string{"hostler.deb": harness.Package(t, "")}))
	return m, m.install()
}

// install boots a machine whose payload is the package, installs this and applies
// the declaration site.
func (m *machine) install() (web map[string]instance) {
	m.Helper()
	m.boot()
	m.timed("the package installed", "tar -xf /dev/vdb -C /root && apt-get -qq -y install /root/hostler.deb </dev/null")
	m.write(site, m.siteYAML())
	m.timed("the first machine ready", "hostler apply -f "+site+" --wait --timeout 9m")
	web = m.settled([]string{site}, "web")
	m.outcome("installed by apt; the first %s machine runs, with its network and storage", m.base.daemon.kind)
	return web
}

// restart reboots a machine on which the declaration site is carried out, with
// between while it is off: afterwards everything is there again as it was.
func (m *machine) restart(web map[string]instance, between func()) (after map[string]instance) {
	m.Helper()
	m.sh("hostler exec web -- sh -c 'echo kept >/srv/note && echo passing >/scratch/note'")
	m.off("reboot")
	between()
	m.boot()
	after = m.settled([]string{site}, "web")
	m.survived(web, after)
	m.inPlace()
	m.sh("hostler exec web -- sh -c 'test ! -e /scratch/note'")
	m.outcome("after a reboot the machine, its network and its storage are as declared, and the same instance")
	return after
}

// limitChangesLive changes the memory of a running guest of classic LXC, 64 MiB in
// the declaration, and changes it back. The VM has cgroup v2 alone, which the test
// machines that run containers may not have.
func (m *machine) limitChangesLive(declaration, name string) {
	m.Helper()
	for _, c := range []struct{ from, to, bytes string }{{"64MiB", "72MiB", "75497472"}, {"72MiB", "64MiB", "67108864"}} {
		m.sh("sed -i 's/memory: " + c.from + "/memory: " + c.to + "/' " + declaration + " && hostler apply -f " + declaration + " --wait --timeout 5m && grep -x " + c.bytes + " /sys/fs/cgroup/lxc.payload.hostler." + name + "/memory.max")
	}
	m.outcome("the memory of a running guest of classic LXC changes on cgroup v2")
}

// inPlace checks what the declaration site says, from the host and from
// inside the machine; each with one command, since these cost much here.
func (m *machine) inPlace() {
	m.Helper()
	inside := m.sh(`hostler exec web -- sh -c 'ip -4 -o addr show dev eth0; ip link show eth0; cat /srv/note; mount'`)
	host := m.sh(`ip -4 -o addr show dev br-lan; losetup -n -O BACK-FILE; nft list tables; hostler get block-devices; test -z "$(dpkg --audit)"`)
	for what, in := range map[string]struct{ text, expr string }{
		"the machine's address":      {inside, `inet 10\.20\.0\.10/24 `},
		"the machine, from the host": {inside, `eth0.*[<,]UP[,>]`},
		"the kept file":              {inside, `(?m)^kept$`},
		"the managed filesystem":     {inside, `(?m)^.* on /srv type ext4 `},
		"the tmpfs":                  {inside, `(?m)^.* on /scratch type tmpfs `},
		"the bridge's address":       {host, `inet 10\.20\.0\.1/24 `},
		"one loop device":            {host, `(?m)^/var/lib/hostler/`},
		"one table of the firewall":  {host, `(?m)^table inet hostler`},
		"the host's disk, read":      {host, `(?m)^vda\d* .* ext4 filesystem.* /(,| |$)`},
		"one table of the bridges":   {host, `(?m)^table bridge hostler`},
	} {
		if n := len(regexp.MustCompile(in.expr).FindAllString(in.text, -1)); n != 1 {
			m.Errorf("%s is there %d times:\n%s", what, n, in.text)
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
