//go:build integration

package deb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

const (
	provisioner = "hostler-provisioner@lxd.service"
	aptUnit     = "hostler-apt.service"
)

// A package's life on a Debian host with systemd: install, a first machine,
// crashes, upgrade, removal, purge. The machine's init keeps its PID through
// all of it.
func TestPackageLife(t *testing.T) {
	lxd := harness.StartLXD(t, 41)
	p := &packaged{T: t, host: lxd.StartHost("debian")}
	p.host.Sh("apt-get -qq update")
	image, digest := harness.TinyImage(t)
	p.host.Push(image, "/root/tiny.tar.gz")
	p.host.Write("/root/web.yaml", "version: 1\nmachines:\n  web:\n    type: lxd\n    image: file:/root/tiny.tar.gz#sha256="+digest+"\n")
	p.host.Push(harness.Package(t, ""), "/root/hostler.deb")
	p.host.Push(harness.Package(t, "+1"), "/root/hostler-next.deb")

	for _, step := range []struct {
		name string
		run  func(*packaged)
	}{
		{"install", (*packaged).install},
		{"rights", (*packaged).rights},
		{"first machine", (*packaged).firstMachine},
		{"storage", (*packaged).storage},
		{"image built", (*packaged).imageBuilt},
		{"provisioners inside", (*packaged).provisionersInside},
		{"network", (*packaged).network},
		{"DHCP client", (*packaged).dhcpClient},
		{"provisioner killed", (*packaged).provisionerKilled},
		{"provisioner stopped", (*packaged).provisionerStopped},
		{"agent killed", (*packaged).agentKilled},
		{"upgrade", (*packaged).upgrade},
		{"remove", (*packaged).remove},
		{"install again", (*packaged).installAgain},
		{"purge", (*packaged).purge},
	} {
		// Each step stands on the one before.
		if !t.Run(step.name, func(t *testing.T) { step.run(&packaged{T: t, host: p.host.With(t), guest: guestOf(p)}) }) {
			t.Log(p.host.Sh("journalctl --no-pager -n 80 -u hostlerd -u '" + provisioner + "' || true"))
			t.FailNow()
		}
	}
}

type packaged struct {
	*testing.T
	host *harness.Host
	// guest is the PID of the machine's init when the step began, 0 when
	// there was none.
	guest int
}

func (p *packaged) install() {
	p.host.Install("/root/hostler.deb")
	p.active("hostlerd.service")
	p.state(provisioner, "inactive")
	for path, want := range map[string]string{
		"/etc/hostler":              "755 root root",
		"/etc/hostler/hostler.yaml": "640 root hostler-admin",
		"/etc/hostler/conf.d":       "750 root hostler-admin",
		"/var/lib/hostler":          "700 root root",
		"/run/hostler":              "750 root hostler",
		"/run/hostler/hostler.sock": "660 root hostler",
	} {
		p.equal(path, p.host.Sh("stat -c '%a %U %G' "+path), want)
	}
	if out, err := p.host.Try("command -v lxd"); err == nil {
		p.Errorf("LXD is there before a machine is declared: %s", out)
	}
	p.equal("version", p.host.Sh("hostler version | grep -oE '[0-9]+[.][0-9]+[.][0-9]+[+~0-9]*' | head -1"), p.host.Sh("dpkg-query -W -f '${Version}' hostler"))
}

func (p *packaged) rights() {
	p.host.Sh("useradd reader -G hostler && useradd admin -G hostler,hostler-admin && useradd stranger")
	p.host.Sh("install -m 0644 /root/web.yaml /tmp/web.yaml")
	p.host.Sh("su reader -c 'hostler status'")
	// An administrator needs no second group, with the socket of the first start
	// and of every later start.
	p.host.Sh("useradd soleadmin -G hostler-admin")
	for range 2 {
		p.host.Sh("su soleadmin -c 'hostler status && hostler harvest destroyed'")
		p.host.Sh("systemctl restart hostlerd && hostler status >/dev/null")
	}
	for who, command := range map[string]string{"reader": "hostler delete machine/none", "stranger": "hostler status"} {
		if out, err := p.host.Try("su " + who + " -c '" + command + "'"); err == nil {
			p.Errorf("%s may run %q: %s", who, command, out)
		}
	}
}

// left is the command line of a process that a package leaves behind.
const left = "sleep 86400"

// firstMachine installs LXD in the unit hostler-apt.service. The agent is killed
// meanwhile: the unit goes on, and the next agent waits for it. A package's
// script leaves a process behind.
func (p *packaged) firstMachine() {
	p.host.Write("/etc/apt/apt.conf.d/99hold", `DPkg::Pre-Invoke {"touch /root/reached; while test ! -e /root/go; do sleep 0.1; done";};
DPkg::Post-Invoke {"setsid `+left+` >/dev/null 2>&1 </dev/null &";};
`)
	p.host.Sh("hostler apply -f /root/web.yaml")
	p.host.Sh("timeout 120 sh -c 'until test -e /root/reached; do sleep 0.1; done'")
	agent, apt := p.mainPID("hostlerd.service"), p.mainPID(aptUnit)
	p.host.Sh("systemctl kill --kill-who=main -s KILL hostlerd.service")
	p.restarted("hostlerd.service", agent)
	p.host.Sh("timeout 60 sh -c 'until hostler status | grep -F \"waiting for " + aptUnit + "\"; do sleep 0.1; done'")
	p.equal("the unit that installs", p.mainPID(aptUnit), apt)
	p.host.Sh("touch /root/go; rm /etc/apt/apt.conf.d/99hold; hostler apply -f /root/web.yaml --wait --timeout 4m")
	p.machine("running")
	p.equal("installations of lxd", p.host.Sh("grep -c ' install lxd:' /var/log/dpkg.log"), "1")
	if said := p.host.Sh("journalctl -q --no-pager -o cat -u " + aptUnit); !strings.Contains(said, "Setting up lxd ") {
		p.Errorf("the journal of %s does not show the installation: %s", aptUnit, said)
	}
	p.state(aptUnit, "inactive")
	p.active(provisioner)
	p.equal("user of the provisioner", p.host.Sh("ps -o user:20= -p $(systemctl show -P MainPID '"+provisioner+"')"), "hostler-lxd")
	p.host.Sh("hostler plan -f /root/web.yaml")
	if pid := guestOf(p); pid == 0 {
		p.Error("the machine's init has no PID")
	}
}

// storage: mounts that the agent makes under its unit's confinement appear on
// the host, in LXD and in the machine, and disappear from all of them.
func (p *packaged) storage() {
	const mount, view = "/var/lib/hostler/mounts/host/scratch", "/var/lib/hostler/mounts/machines/web/scratch"
	p.host.Sh("mkdir -p /root/storage && { cat /root/web.yaml; echo '    storage: [{filesystem: scratch, path: /scratch}]'; echo 'filesystems: {scratch: {provider: tmpfs, size: 8MiB}}'; } > /root/storage/web.yaml")
	p.host.Sh("hostler apply --replace -f /root/storage/web.yaml --wait --timeout 2m")
	p.host.Sh("lxc exec web -T -- sh -c 'echo seen > /scratch/file'")
	for _, process := range []string{"1", p.mainPID("hostlerd.service"), "$(pgrep -xo lxd)"} {
		p.equal("what process "+process+" sees", p.host.Sh("cat /proc/"+process+"/root"+mount+"/file /proc/"+process+"/root"+view+"/file"), "seen\nseen\n")
	}
	p.host.Sh("hostler apply --replace --allow destroy -f /root/web.yaml --wait --timeout 2m")
	for _, process := range []string{"1", p.mainPID("hostlerd.service"), "$(pgrep -xo lxd)"} {
		if out, err := p.host.Try("grep /var/lib/hostler/mounts /proc/" + process + "/mountinfo"); err == nil {
			p.Errorf("process %s still has %s", process, out)
		}
	}
	p.host.Sh("! hostler get filesystems -o name | grep .")
	p.sameGuest()
}

// imageBuilt: the programs that build an image run in a unit, which leaves
// nothing behind.
func (p *packaged) imageBuilt() {
	p.host.Sh("hostler image build busybox/1")
	p.host.Sh("journalctl -q --no-pager _PID=1 | grep -E 'Started hostler-image-[0-9a-f]+[.]service'")
	p.host.Sh("hostler image list -o json | grep -F busybox/1")
	p.equal("units of images", p.host.Sh("systemctl list-units --all --no-legend 'hostler-image-*' 'hostler-scan-*'"), "")
}

// provisionersInside: an agent that runs the provisioners itself has the rights
// of its own unit only, so that it still installs packages and builds images in
// units. The unit for packages gets another name, since a package left a process
// in the first. The provisioner's unit ends: two provisioners would hinder each
// other.
func (p *packaged) provisionersInside() {
	const dir, file = "/etc/systemd/system/hostlerd.service.d", "/root/inside.yaml"
	restart := func(script string) {
		agent := p.mainPID("hostlerd.service")
		p.host.Sh(script + " && systemctl daemon-reload && systemctl restart hostlerd.service")
		p.restarted("hostlerd.service", agent)
		p.machine("running")
	}
	restart("mkdir " + dir + " && printf '[Service]\nExecStart=\nExecStart=/usr/bin/hostlerd --provisioners inside\n' >" + dir + "/inside.conf")
	p.state(provisioner, "inactive")
	if pid := p.host.Sh("pgrep -xf '" + left + "'"); !strings.Contains(p.host.Sh("cat /proc/"+strings.TrimSpace(pid)+"/cgroup"), "/"+aptUnit) {
		p.Errorf("the process %s that a package left is not in %s", pid, aptUnit)
	}
	p.host.Sh("dpkg --remove --force-depends nftables")
	p.host.Write(file, "version: 1\nnetworks: {inside: {bridge: br-inside, addresses: [10.222.9.1/24], nat: true}}\n")
	p.host.Sh("hostler apply -f " + file + " --wait --timeout 2m && test -x /usr/sbin/nft")
	p.host.Sh("journalctl -q --no-pager _PID=1 | grep -F 'Started hostler-apt:2.service'")
	p.host.Sh("hostler delete -f " + file + " --wait --timeout 1m")
	built := "journalctl -q --no-pager _PID=1 | grep -cE 'Started hostler-image-[0-9a-f]+[.]service'"
	before := p.host.Sh(built)
	p.host.Sh("hostler image build busybox/1")
	if after := p.host.Sh(built); after == before {
		p.Errorf("%s units have built images, as before", strings.TrimSpace(after))
	}
	p.host.Sh("pkill -xf '" + left + "'")
	harness.Wait(p, "the end of the units for packages", time.Minute, func() error {
		if units := p.host.Sh("systemctl list-units --all --no-legend 'hostler-apt*'"); strings.TrimSpace(units) != "" {
			return errors.New(units)
		}
		return nil
	})
	restart("rm -r " + dir)
	p.active(provisioner)
	p.sameGuest()
}

// network: dnsmasq is a unit that outlives the agent. A changed network ends
// it, although the agent may not send signals to its user.
func (p *packaged) network() {
	const unit, file = "hostler-dnsmasq-br-lan.service", "/root/lan.yaml"
	declare := func(addresses string) {
		p.host.Write(file, "version: 1\nnetworks: {lan: {bridge: br-lan, addresses: ["+addresses+"], dhcp: true}}\n")
		p.host.Sh("hostler apply --replace -f " + file + " --wait --timeout 2m")
	}
	declare("10.222.7.1/24")
	first := p.mainPID(unit)
	p.equal("user of dnsmasq", p.host.Sh("ps -o user:20= -p "+first), "hostler-dnsmasq")
	agent := p.mainPID("hostlerd.service")
	p.host.Sh("systemctl kill --kill-who=main -s KILL hostlerd.service")
	p.restarted("hostlerd.service", agent)
	p.host.Sh("hostler apply -f " + file + " --wait --timeout 1m")
	p.equal("dnsmasq after the agent's death", p.mainPID(unit), first)
	declare("10.222.7.1/24, 10.222.8.1/24")
	if now := p.mainPID(unit); now == first || now == "0" {
		p.Errorf("dnsmasq is process %s, it was %s", now, first)
	}
	p.host.Sh("test \"$(pgrep -cu hostler-dnsmasq dnsmasq)\" = 1")

	// A dnsmasq that an earlier version started without a unit gets a scope, in
	// which it ends. Here the agent was killed between the two.
	command := strings.TrimSpace(p.host.Sh("tr '\\0' ' ' </proc/" + p.mainPID(unit) + "/cmdline"))
	p.host.Sh("systemctl stop hostlerd.service && systemctl stop " + unit)
	p.host.Sh("setsid sh -c 'exec systemd-run --scope --unit=hostler-end-$$ " + command + "' >/dev/null 2>&1 </dev/null &")
	p.host.Sh("timeout 30 sh -c 'until pgrep -u hostler-dnsmasq dnsmasq; do sleep 0.1; done'")
	scope := "hostler-end-" + strings.TrimSpace(p.host.Sh("pgrep -u hostler-dnsmasq dnsmasq")) + ".scope"
	p.active(scope)
	p.host.Sh("systemctl start hostlerd.service && hostler apply -f " + file + " --wait --timeout 1m")
	p.active(scope)
	declare("10.222.7.1/24")
	p.state(scope, "inactive")
	p.active(unit)
	p.host.Sh("test \"$(pgrep -cu hostler-dnsmasq dnsmasq)\" = 1")
	p.host.Sh("hostler delete -f " + file + " --wait --timeout 1m")
	p.state(unit, "inactive")
	p.host.Sh("! pgrep -u hostler-dnsmasq")
}

// dhcpClient: a bridge takes over a NIC with a lease of dhclient, and gives it
// back. The lease goes with it; each client is in a unit of its link.
func (p *packaged) dhcpClient() {
	const file, address = "/root/up.yaml", "ip -4 -o addr show dev %s | grep -oE '192[.]0[.]2[.][0-9]+/24'"
	p.host.Install("isc-dhcp-client")
	// The gateway names neither a router nor a resolver: this host has others.
	p.host.Sh(`set -e
		ip netns add gateway
		ip link add hup0 type veth peer name gw0 netns gateway
		ip netns exec gateway sh -ec 'ip addr add 192.0.2.1/24 dev gw0; ip link set gw0 up
			dnsmasq -C /dev/null --port=0 --leasefile-ro --interface=gw0 --bind-interfaces --dhcp-range=192.0.2.50,192.0.2.99,1h --dhcp-option=3 --dhcp-option=6 --pid-file=/run/gateway.pid'
		mkdir -p /etc/network; echo 'iface hup0 inet dhcp' >/etc/network/interfaces
		ip link set hup0 up
		dhclient -4 -pf /run/dhclient.hup0.pid -lf /var/lib/dhcp/dhclient.hup0.leases hup0`)
	lease := p.host.Sh(fmt.Sprintf(address, "hup0"))
	client := func(link, other string) {
		p.Helper()
		harness.Wait(p, "the lease on "+link, time.Minute, func() error {
			if now, err := p.host.Try(fmt.Sprintf(address, link)); err != nil || now != lease {
				return fmt.Errorf("%s has %q, want %q", link, now, lease)
			}
			_, err := p.host.Try("test -s /run/dhclient." + link + ".pid && ! test -e /run/dhclient." + other + ".pid && test $(pgrep -c dhclient) = 1")
			return err
		})
		p.equal("unit of the client on "+link, p.host.Sh("grep -oE 'hostler-[^/]+' /proc/$(cat /run/dhclient."+link+".pid)/cgroup | sort -u"), "hostler-dhclient-"+link+".service")
	}
	p.host.Write(file, "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [hup0]}}\n")
	p.host.Sh("hostler apply -f " + file + " --wait --timeout 2m")
	client("br-up", "hup0")
	p.host.Sh("hostler delete -f " + file + " --wait --timeout 1m")
	client("hup0", "br-up")
	p.host.Sh("pkill dhclient; kill $(cat /run/gateway.pid); ip link delete hup0; ip netns delete gateway; rm /etc/network/interfaces")
	p.sameGuest()
}

func (p *packaged) provisionerKilled() {
	before := p.mainPID(provisioner)
	p.host.Sh("systemctl kill -s KILL '" + provisioner + "'")
	p.restarted(provisioner, before)
	p.machine("running")
	p.sameGuest()
}

// provisionerStopped: a provisioner that the administrator stops is started
// again, unless its unit is masked, which the status reports.
func (p *packaged) provisionerStopped() {
	p.host.Sh("systemctl stop '" + provisioner + "' && hostler retry type/lxd")
	p.active(provisioner)
	p.worker("running")
	p.host.Sh("systemctl mask --runtime --now '" + provisioner + "' && hostler retry type/lxd")
	p.worker("masked")
	p.machine("unknown")
	p.host.Sh("systemctl unmask --runtime '" + provisioner + "' && hostler retry type/lxd")
	p.active(provisioner)
	p.worker("running")
	p.machine("running")
	p.sameGuest()
}

// worker waits for a state of the provisioner in the host's status, which
// counts the passes of which its unit tells.
func (p *packaged) worker(want string) {
	p.Helper()
	harness.Wait(p, "the provisioner "+want, time.Minute, func() error {
		out := p.host.Sh("hostler status -o json")
		var status struct {
			Workers []struct {
				Name, State, Message string
				Passes               int
			}
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		for _, w := range status.Workers {
			if w.Name == "provisioner-lxd" && w.State == want && w.Passes > 0 && strings.Contains(w.Message, provisioner) {
				return nil
			}
		}
		return fmt.Errorf("workers are %+v", status.Workers)
	})
}

// agentKilled, F1: the agent is killed more often and faster than systemd's
// default limit of starts permits.
func (p *packaged) agentKilled() {
	var before string
	for range 7 {
		before = p.mainPID("hostlerd.service")
		p.host.Sh("systemctl kill --kill-who=main -s KILL hostlerd.service")
		harness.Wait(p, "hostlerd started again", time.Minute, func() error {
			if now := p.mainPID("hostlerd.service"); now == before || now == "0" {
				return fmt.Errorf("pid %s (was %s)", now, before)
			}
			return nil
		})
	}
	p.restarted("hostlerd.service", before)
	p.machine("running")
	p.active(provisioner)
	p.sameGuest()
}

func (p *packaged) upgrade() {
	agent, worker := p.mainPID("hostlerd.service"), p.mainPID(provisioner)
	p.host.Install("/root/hostler-next.deb")
	p.restarted("hostlerd.service", agent)
	p.restarted(provisioner, worker)
	p.machine("running")
	p.host.Sh("hostler plan -f /root/web.yaml")
	p.sameGuest()
}

func (p *packaged) remove() {
	p.host.Sh("DEBIAN_FRONTEND=noninteractive apt-get -qq -y remove hostler </dev/null")
	p.state("hostlerd.service", "inactive")
	p.state(provisioner, "inactive")
	p.host.Sh("test ! -e /usr/bin/hostlerd && test -e /etc/hostler/hostler.yaml && test -e /etc/apparmor.d/lxc-hostler && test -d /var/lib/hostler")
	p.sameGuest()
}

func (p *packaged) installAgain() {
	p.host.Install("/root/hostler-next.deb")
	p.active("hostlerd.service")
	p.machine("running")
	p.active(provisioner)
	p.sameGuest()
}

func (p *packaged) purge() {
	p.host.Sh("DEBIAN_FRONTEND=noninteractive apt-get -qq -y purge hostler </dev/null")
	p.host.Sh("for p in /etc/hostler /var/lib/hostler /run/hostler /etc/sysctl.d/60-hostler.conf /etc/apparmor.d/lxc-hostler; do ! test -e $p || { echo $p is left; exit 1; }; done")
	if out, err := p.host.Try("getent passwd hostler-lxd || getent passwd hostler-dnsmasq || getent group hostler hostler-admin"); err == nil {
		p.Errorf("accounts are left: %s", out)
	}
	if out := p.host.Sh("systemctl list-units --all --no-legend 'hostler*'"); strings.TrimSpace(out) != "" {
		p.Errorf("units are left: %s", out)
	}
	p.sameGuest()
}

func (p *packaged) machine(want string) {
	p.Helper()
	harness.Wait(p, "machine web "+want, time.Minute, func() error {
		out, err := p.host.Try("hostler get machines -o json")
		if err != nil {
			return err
		}
		var machines []struct{ Name, Status, Message string }
		if err := json.Unmarshal([]byte(out), &machines); err != nil {
			return err
		}
		if len(machines) != 1 || machines[0].Name != "web" || machines[0].Status != want {
			return fmt.Errorf("machines are %+v", machines)
		}
		return nil
	})
}

func (p *packaged) active(unit string) { p.Helper(); p.state(unit, "active") }

func (p *packaged) state(unit, want string) {
	p.Helper()
	harness.Wait(p, unit+" "+want, time.Minute, func() error {
		out, _ := p.host.Try("systemctl is-active '" + unit + "'")
		if got := strings.TrimSpace(out); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func (p *packaged) mainPID(unit string) string {
	p.Helper()
	return strings.TrimSpace(p.host.Sh("systemctl show -P MainPID '" + unit + "'"))
}

// restarted waits until a unit is up again as another process, which runs the
// program that is installed now.
func (p *packaged) restarted(unit, before string) {
	p.Helper()
	harness.Wait(p, unit+" up again", time.Minute, func() error {
		now := p.mainPID(unit)
		state, _ := p.host.Try("systemctl is-active '" + unit + "'")
		if now == before || now == "0" || strings.TrimSpace(state) != "active" {
			return fmt.Errorf("pid %s (was %s), %s", now, before, strings.TrimSpace(state))
		}
		return nil
	})
	p.equal("program of "+unit, p.host.Sh("readlink /proc/"+p.mainPID(unit)+"/exe"), "/usr/bin/hostlerd")
}

func (p *packaged) sameGuest() {
	p.Helper()
	if now := guestOf(p); now != p.guest || now == 0 {
		p.Errorf("the machine's init has PID %d, it had %d", now, p.guest)
	}
}

func (p *packaged) equal(what, got, want string) {
	p.Helper()
	if got, want = strings.TrimSpace(got), strings.TrimSpace(want); got != want {
		p.Errorf("%s: %q, want %q", what, got, want)
	}
}

// guestOf asks LXD, not hostler, for the PID of the machine's init.
func guestOf(p *packaged) int {
	out, err := p.host.Try("lxc query /1.0/instances/web/state")
	if err != nil {
		return 0
	}
	var state struct{ Pid int }
	_ = json.Unmarshal([]byte(out), &state)
	return state.Pid
}
