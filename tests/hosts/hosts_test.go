//go:build integration

package hosts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/harness"
	"hostler/tests/matrix"
)

// TestHost runs each cell of the matrix on one host of HOSTLER_TEST_RELEASE. A
// cell passes, or the release refuses it and hostler gives the reason. Without
// the variable it runs the cells that `make test` has time for, on Debian 13.
func TestHost(t *testing.T) {
	cells := []struct {
		name string
		run  func(*site)
		long bool
	}{
		{"lintian", (*site).lintian, true},
		{"install", (*site).install, false},
		{"quickstart", (*site).quickstart, true},
		{"lxd", (*site).lxd, false},
		{"incus", (*site).incus, true},
		{"lxc", (*site).lxc, true},
		{"kvm", (*site).kvm, true},
		{"network", (*site).network, false},
		{"storage", (*site).storage, false},
		{"autopkgtest", (*site).autopkgtest, true},
		{"reboot", (*site).reboot, false},
		{"upgrade", (*site).upgrade, true},
		{"purge", (*site).purge, false},
	}
	whole := os.Getenv("HOSTLER_TEST_RELEASE") != ""
	if !whole {
		t.Setenv("HOSTLER_TEST_RELEASE", "debian/13")
	}
	release := harness.HostRelease(t)
	host := harness.StartLXD(t, 44).StartHost("host")
	host.Sh("apt-get -qq update")
	image, digest := harness.TinyImage(t)
	host.Push(image, "/root/tiny.tar.gz")
	s := &site{T: t, host: host, release: release, container: "file:/root/tiny.tar.gz#sha256=" + digest}
	if whole {
		disk := kvmtest.TinyReference(t)
		path, sum, _ := strings.Cut(strings.TrimPrefix(disk, "file:"), "#")
		host.Push(path, "/root/tiny.qcow2")
		s.disk = "file:/root/tiny.qcow2#" + sum
		host.Push(harness.Package(t, "+1"), "/root/hostler-next.deb")
	}
	host.Push(harness.Package(t, ""), "/root/hostler.deb")
	for _, script := range []string{"smoke", "first-machine"} {
		host.Push(filepath.Join(harness.Root(t), "debian/tests", script), "/root/"+script)
	}
	for _, c := range cells {
		if c.long && !whole {
			continue
		}
		cell := matrix.Cell{Release: release.Name, Name: c.name, Result: "FAILED"}
		passed := t.Run(c.name, func(t *testing.T) {
			each := *s
			each.T, each.host, each.cell = t, host.With(t), matrix.Cell{Result: "pass"}
			c.run(&each)
			if !t.Failed() {
				cell.Result, cell.Reason = each.cell.Result, each.cell.Reason
			}
		})
		if err := matrix.Record(cell); err != nil {
			t.Error(err)
		}
		if !passed {
			t.Log(host.Sh("journalctl --no-pager -n 60 -u hostlerd -u 'hostler-provisioner@*' || true"))
			if c.name == "install" {
				return
			}
		}
	}
}

// refused records that the release does not have the cell.
func (s *site) refused(reason string) {
	s.cell = matrix.Cell{Result: "refused", Reason: strings.TrimSpace(reason)}
	s.Log("refused:", s.cell.Reason)
}

// lintian: the release's own has nothing against the package.
func (s *site) lintian() {
	s.host.Install("lintian")
	s.host.Sh("lintian --allow-root --fail-on error,warning /root/hostler.deb")
}

func (s *site) install() {
	s.host.Install("/root/hostler.deb")
	s.active("hostlerd.service")
	s.host.Sh("sh /root/smoke")
	if units := s.host.Sh("dpkg -L hostler | grep '/systemd/system/hostlerd.service'"); strings.TrimSpace(units) != "/usr/lib/systemd/system/hostlerd.service" {
		s.Errorf("the unit is %s", units)
	}
}

// quickstart follows the README, with the type and image that its table has for
// this release.
func (s *site) quickstart() {
	text, err := os.ReadFile(filepath.Join(harness.Root(s), "README.md"))
	if err != nil {
		s.Fatal(err)
	}
	_, declaration, _ := strings.Cut(string(text), "```yaml\n")
	declaration, _, _ = strings.Cut(declaration, "```\n")
	_, version, _ := strings.Cut(s.release.Name, "/")
	_, row, found := strings.Cut(string(text), "\n| "+s.release.OS+" "+version+" | `")
	row, _, _ = strings.Cut(row, "` |\n")
	containerType, image, columns := strings.Cut(row, "` | `")
	if !found || !columns {
		s.Fatalf("the README has no row of %s %s", s.release.OS, version)
	}
	declaration = strings.NewReplacer("type: incus", "type: "+containerType, "image: debian/13", "image: "+image).Replace(declaration)
	s.host.Write("/root/web.yaml", declaration)
	// As on a fresh server. The first attempt succeeds nevertheless.
	s.host.Sh("rm -rf /var/lib/apt/lists/*")
	s.host.Sh("cd /root && hostler plan -f web.yaml || test $? = 2")
	// The next cells have a machine of the same name, so it goes even if it failed.
	defer s.host.Sh("cd /root && hostler delete -f web.yaml --wait --timeout 3m")
	s.host.Sh("cd /root && hostler apply -f web.yaml --wait")
	if n := s.host.Sh("hostler events | grep -c 'type/" + containerType + " *Initialising '"); strings.TrimSpace(n) != "1" {
		s.Errorf("%s was initialised %s times", containerType, strings.TrimSpace(n))
	}
	s.host.Sh("hostler exec web -- ls /made-by-hostler && hostler get machines")
}

// first declares the first machine of a type. If hostler refuses the type on
// this host, doctor and plan give the same reason, and first returns it.
func (s *site) first(name, containerType, image, limit string) (reason string) {
	file := "/root/" + name + ".yaml"
	s.host.Write(file, "version: 1\nmachines:\n  "+name+": {type: "+containerType+", image: \""+image+"\"}\n")
	if out, err := s.host.Try("hostler validate -f " + file); err != nil {
		_, reason, _ := strings.Cut(out+err.Error(), "hostler: ")
		reason, _, _ = strings.Cut(reason, "\n")
		return reason
	}
	doctor, _ := s.host.Try("hostler doctor -o json")
	var checks []struct{ Name, Result, Message string }
	if err := json.Unmarshal([]byte(doctor), &checks); err != nil {
		s.Fatalf("%v: %s", err, doctor)
	}
	for _, c := range checks {
		if why, refused := strings.CutPrefix(c.Message, "not available here: "); refused && c.Name == "type "+containerType {
			if plan, _ := s.host.Try("hostler plan -f " + file); !strings.Contains(plan, why) {
				s.Errorf("plan does not give doctor's reason %q:\n%s", why, plan)
			}
			return why
		}
	}
	s.host.Sh("hostler apply -f " + file + " --wait --timeout " + limit)
	s.machine(name, "running")
	return ""
}

func (s *site) lxd() {
	if reason := s.first("web", "lxd", s.container, "5m"); reason != "" {
		if s.release.OS != "Ubuntu" || !strings.Contains(reason, "snap install lxd") {
			s.Errorf("lxd: %s", reason)
		}
		s.refused(reason)
		return
	}
	if got := s.host.Sh("hostler exec web -- hostname"); strings.TrimSpace(got) != "web" {
		s.Errorf("the machine is called %q", got)
	}
}

func (s *site) incus() {
	if reason := s.first("inside", "incus", s.container, "5m"); reason != "" {
		if !strings.Contains(reason, "incus") {
			s.Errorf("incus: %s", reason)
		}
		s.refused(reason)
	}
}

// lxc: the provisioner has only its worker's rights, and a machine outlives it.
func (s *site) lxc() {
	if reason := s.first("bare", "lxc", s.container, "5m"); reason != "" {
		// The unified hierarchy in the host under test lacks the controllers that
		// the machine of the test has given to cgroup v1.
		if s.host.Sh("stat -fc %T /sys/fs/cgroup") != "cgroup2fs\n" || !strings.Contains(reason, "there is no cgroup controller") || strings.Contains(reason, "; ") {
			s.Errorf("lxc: %s", reason)
		}
		s.refused(reason)
		return
	}
	if got := s.host.Sh("hostler exec bare -- hostname"); strings.TrimSpace(got) != "bare" {
		s.Errorf("the machine is called %q", got)
	}
	s.host.Sh("lxc-info -n bare -s | grep RUNNING")
	const status = "/proc/$(systemctl show -p MainPID --value hostler-provisioner@lxc)/status"
	s.host.Sh("grep -P '^CapBnd:\t0+$' " + status + " && grep -P '^NoNewPrivs:\t1$' " + status)
	pid := s.host.Sh("lxc-info -n bare -p -H")
	s.host.Sh("grep -P '^NoNewPrivs:\t0$' /proc/" + strings.TrimSpace(pid) + "/status")
	s.host.Sh("systemctl restart hostlerd hostler-provisioner@lxc && hostler status >/dev/null")
	if got := s.host.Sh("lxc-info -n bare -p -H"); got != pid {
		s.Errorf("its init was %s and is %s", pid, got)
	}
	s.host.Sh("sed -i 's/type: lxc/type: lxc, memory: 256MiB/' /root/bare.yaml && hostler apply -f /root/bare.yaml --wait --timeout 3m")
	s.host.Sh("hostler delete -f /root/bare.yaml --wait --timeout 3m && ! lxc-info -n bare")

	// Ubuntu's mirror has no Debian.
	image, r := "debian/12", harness.HostRelease(s)
	if r.OS == "Ubuntu" {
		image = r.Name
	}
	s.host.Sh("sed 's/^  web:/  classic:/; s,image: debian/12,image: " + image + ",' /usr/share/doc/hostler/examples/lxc.yaml >/root/classic.yaml && hostler apply -f /root/classic.yaml --wait --timeout 9m")
	if got := s.host.Sh("hostler exec classic -- sh -c '. /etc/os-release; echo $ID/$VERSION_ID $(systemctl is-active multi-user.target)'"); got != image+" active\n" {
		s.Errorf("the machine of the example runs %q", got)
	}
	s.host.Sh("hostler delete -f /root/classic.yaml --wait --timeout 3m")
}

func (s *site) kvm() {
	s.host.Sh("printf 'types: {kvm: {accelerator: tcg}}\\n' >>/etc/hostler/hostler.yaml && systemctl restart hostlerd && hostler status >/dev/null")
	if reason := s.first("vm", "kvm", s.disk, "9m"); reason != "" {
		s.Errorf("kvm: %s", reason)
		return
	}
	s.host.Sh("virsh -q list --state-running --name | grep .")
}

func (s *site) network() {
	s.host.Write("/root/lan.yaml", "version: 1\nnetworks: {lan: {bridge: br-lan, addresses: [10.222.7.1/24], nat: true, dhcp: true}}\n")
	s.host.Sh("hostler apply -f /root/lan.yaml --wait --timeout 3m")
	s.networkUp()
}

func (s *site) networkUp() {
	s.Helper()
	s.active("hostler-dnsmasq-br-lan.service")
	harness.Wait(s, "the bridge", time.Minute, func() error {
		_, err := s.host.Try("ip -4 -o addr show dev br-lan | grep -F 10.222.7.1/24 && nft list ruleset | grep -F br-lan")
		return err
	})
}

// storage: a filesystem of its own in a file, used by a machine if the release
// runs LXD ones.
func (s *site) storage() {
	use := ""
	if s.has("web") {
		use = "machines:\n  web: {type: lxd, image: \"" + s.container + "\", storage: [{filesystem: scratch, path: /scratch}]}\n"
	}
	s.host.Write("/root/web.yaml", "version: 1\n"+use+"filesystems: {scratch: {provider: tmpfs, size: 8MiB}}\n")
	s.host.Sh("hostler apply --replace --allow restart -f /root/web.yaml --wait --timeout 3m")
	if use == "" {
		s.host.Sh("hostler get filesystems -o name | grep -w scratch")
		return
	}
	s.host.Sh("hostler exec web -- sh -c 'echo seen > /scratch/file' && grep -x seen /var/lib/hostler/mounts/host/scratch/file")
}

// autopkgtest runs the package's test of a first machine, whose image the host
// builds.
func (s *site) autopkgtest() { s.host.Sh("sh /root/first-machine") }

// reboot: the host starts again with its network and its machines.
func (s *site) reboot() {
	before := s.host.Sh("cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1")
	running := s.names()
	s.host.Restart()
	if after := s.host.Sh("cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1"); after == before {
		s.Error("the host was not restarted")
	}
	s.active("hostlerd.service")
	for _, name := range running {
		s.machine(name, "running")
	}
	s.networkUp()
}

func (s *site) upgrade() {
	before := s.host.Sh("systemctl show -P MainPID hostlerd.service")
	running := s.names()
	s.host.Install("/root/hostler-next.deb")
	harness.Wait(s, "the new agent", time.Minute, func() error {
		if now := s.host.Sh("systemctl show -P MainPID hostlerd.service"); now == before || strings.TrimSpace(now) == "0" {
			return fmt.Errorf("process %s, as before", now)
		}
		return nil
	})
	s.active("hostlerd.service")
	for _, name := range running {
		s.machine(name, "running")
	}
}

// purge removes the package and leaves the guests running.
func (s *site) purge() {
	const guests = `pgrep -f "[g]uest=|^[[]lxc monitor" | sort`
	// A network and its DHCP server outlive the package like guests do.
	s.host.Sh("hostler delete -f /root/lan.yaml --wait --timeout 1m")
	before := s.host.Sh(guests + " || true")
	s.host.Sh("DEBIAN_FRONTEND=noninteractive apt-get -qq -y purge hostler </dev/null")
	s.host.Sh("for p in /etc/hostler /run/hostler /etc/sysctl.d/60-hostler.conf; do ! test -e $p || { echo $p is left; exit 1; }; done")
	// The mounts that guests use stay.
	s.host.Sh("! find /var/lib/hostler -mindepth 1 -maxdepth 1 ! -name mounts | grep .")
	if out := s.host.Sh("systemctl list-units --all --no-legend 'hostler*'"); strings.TrimSpace(out) != "" {
		s.Errorf("units are left: %s", out)
	}
	if after := s.host.Sh(guests + " || true"); after != before {
		s.Errorf("the guests' processes were %q and are %q", before, after)
	}
}
