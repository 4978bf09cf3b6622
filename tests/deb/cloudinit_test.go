//go:build integration

package deb_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// cloud is a stock host with a cloud-init that reads its user-data from a folder.
type cloud struct {
	*harness.Cloud
	host *harness.Host
}

const seed = "/var/lib/cloud/seed/nocloud"

// TestCloudInit sets up copies of one stock host of a cloud. The copies mostly wait
// for their boots, so they run at the same time.
func TestCloudInit(t *testing.T) {
	stock := newStock(t, harness.StartLXD(t, 47))
	harness.Package(t, "") // built once, for all
	t.Run("user-data makes a host", func(t *testing.T) { t.Parallel(); userDataMakesAHost(stock.fresh(t, "cloud")) })
	t.Run("on an image with hostler", func(t *testing.T) { t.Parallel(); onAnImageWithHostler(stock.fresh(t, "image")) })
	t.Run("the example", func(t *testing.T) { t.Parallel(); exampleMakesAHost(stock.fresh(t, "example")) })
	t.Run("copies of a host", func(t *testing.T) { t.Parallel(); copiesOfAHost(t, stock.fresh(t, "site")) })
}

// newStock makes a host with the packages that a cloud image has, and a cloud-init
// that did not run yet and reads its user-data from a folder. The host is stopped.
func newStock(t *testing.T, lxd *harness.LXD) *cloud {
	t.Helper()
	c := on(t, lxd.StartHost("stock"))
	c.Sh("mkdir -p /etc/cloud && touch " + notYet + " && apt-get -qq update")
	c.host.Install("cloud-init", "openssh-server", "sudo")
	if harness.HostRelease(t).Name != "debian/12" { // cloud-init runs their programs
		c.host.Install("systemd-resolved", "lsb-release")
	}
	image, digest := harness.TinyImage(t)
	c.host.Push(image, "/root/tiny.tar.gz")
	c.Image = "file:/root/tiny.tar.gz#sha256=" + digest
	c.host.Write("/etc/cloud/cloud.cfg.d/90-test.cfg", "datasource_list: [NoCloud, None]\napt: {preserve_sources_list: true}\nlocale: false\n")
	c.host.Stop()
	return c
}

// notYet keeps cloud-init from running.
const notYet = "/etc/cloud/cloud-init.disabled"

// fresh starts a copy of the stock host, whose next boot is its first with cloud-init.
func (c *cloud) fresh(t *testing.T, name string) *cloud {
	t.Helper()
	copied := c.copied(t, name)
	copied.Sh("rm " + notYet + " && mkdir -p " + seed)
	return copied
}

// copied starts a copy of the host, which is stopped. The copy is deleted when the
// test ends.
func (c *cloud) copied(t *testing.T, name string) *cloud {
	t.Helper()
	copied := on(t, c.host.With(t).Copy(name))
	copied.Image = c.Image
	t.Cleanup(copied.host.Delete)
	return copied
}

// on returns a running host as one of the cloud.
func on(t *testing.T, host *harness.Host) *cloud {
	t.Helper()
	boot := func(instance, userData string) {
		host.Write(seed+"/meta-data", "instance-id: "+instance+"\nlocal-hostname: cloud\n")
		host.Write(seed+"/user-data", userData)
		host.Reboot()
	}
	return &cloud{&harness.Cloud{TB: t, Try: host.Try, Kind: harness.HostRelease(t).Hypervisor(), Patience: 5 * time.Minute, Boot: boot}, host}
}

// install installs the package.
func (c *cloud) install() {
	c.Helper()
	c.host.Push(harness.Package(c, ""), "/root/hostler.deb")
	c.host.Install("/root/hostler.deb")
}

// reported checks the times of the machine and the archive for a bug report.
func (c *cloud) reported(name string) {
	c.Helper()
	for _, step := range []string{"prepare type/" + c.Kind, "create machine/" + name, "boot machine/" + name} {
		if out := c.Sh("hostler analyze blame"); !strings.Contains(strings.Join(strings.Fields(out), " "), step) {
			c.Errorf("no %q in\n%s", step, out)
		}
	}
	c.Sh("cd /root && rm -rf hostler-logs-* && hostler collect-logs && tar -xzf hostler-logs-*.tar.gz && rm hostler-logs-*.tar.gz")
	if out := c.Sh("cat /root/hostler-logs-*/collected.txt"); strings.Contains(out, "missing") {
		c.Errorf("the archive is not whole: %s", out)
	}
	for file, want := range map[string]string{"plan.json": `"steps"`, "journal.txt": "The agent is ready", "declarations/cloud-init-host.json": name, "machines/" + name + ".json": "took", "cloud-init-status.json": "modules-final"} {
		if out, err := c.Try("cat /root/hostler-logs-*/" + file); err != nil || !strings.Contains(out, want) {
			c.Errorf("%s lacks %q: %s", file, want, out)
		}
	}
	if out := c.Sh("sh /usr/share/bug/hostler/script 3>&1"); !strings.Contains(out, "hostler-logs.tar.gz has the logs") {
		c.Errorf("the report is %s", out)
	}
}

// userDataMakesAHost has the user-data of `hostler user-data`. cloud-init installs the
// package and ends when the machine runs. Later boots without the user-data change
// nothing.
func userDataMakesAHost(c *cloud) {
	pkg := harness.Package(c, "")
	c.Boot("one", c.FromPackage(c.serve(filepath.Dir(pkg)), pkg, c.Machines("web")))
	c.Ended("done")
	// Without a further wait, since cloud-init has waited for the machine.
	if out := c.Sh("hostler get machine web"); !strings.Contains(out, "running") {
		c.Errorf("after cloud-init's end: %s", out)
	}
	id := c.Running("web")
	c.Served("web")
	c.reported("web")
	stat := "stat -c '%a %U %G %i %Y' /etc/hostler/conf.d/cloud-init-host.yaml"
	file := c.Sh(stat)
	if !strings.HasPrefix(file, "640 root hostler-admin ") {
		c.Errorf("the declaration is %s", file)
	}
	for _, change := range []string{"rm -r " + seed, "cloud-init clean --logs"} {
		c.Sh(change)
		c.host.Reboot()
		c.Unchanged("web", id, func() { c.Ended("done") })
		if now := c.Sh(stat); now != file {
			c.Errorf("after %s the declaration is %s, before %s", change, now, file)
		}
	}
	c.readBeforeReady("late")
	if link := c.Sh("readlink /var/lib/cloud/handlers/hostler_part_handler.py"); strings.TrimSpace(link) != "/usr/share/hostler/cloud-init/hostler_part_handler.py" {
		c.Errorf("the handler's link leads to %q", link)
	}
}

// readBeforeReady checks that hostlerd counts as started when it has read conf.d:
// a wait for an object of a file that was there does not fail for want of it.
func (c *cloud) readBeforeReady(name string) {
	c.Helper()
	c.Sh("systemctl stop hostlerd")
	c.host.Write("/etc/hostler/conf.d/"+name+".yaml", c.Machines(name))
	if out, err := c.Try("systemctl start hostlerd && hostler get machine " + name + " && hostler wait --all --timeout 3m && hostler get machine " + name); err != nil || !strings.Contains(out, "running") {
		c.Errorf("a machine declared before the start of hostlerd: %v\n%s", err, out)
	}
}

// onAnImageWithHostler has cloud-init and the agent install packages at the same boot:
// the agent waits for cloud-init, which waits for the machine. A mistake in the
// user-data is an error of cloud-init. Changed user-data of a new instance changes the
// machines.
func onAnImageWithHostler(c *cloud) {
	c.install()

	// The apt of cloud-init, which has the locks, ends after the look at the status.
	const seen, hook = "/run/seen", "/etc/apt/apt.conf.d/99-test"
	c.host.Write(hook, `DPkg::Pre-Invoke { "until [ -e `+seen+` ]; do sleep 0.1; done"; };`+"\n")
	c.Boot("one", c.WithNginx("web"))
	harness.Wait(c, "the lock in the status", 3*time.Minute, func() error {
		if out, err := c.Try("hostler status"); err != nil || !strings.Contains(out, "packages of cloud-init") {
			return errors.New(out)
		}
		return nil
	})
	c.Sh("rm " + hook + " && touch " + seen)
	c.Ended("done")
	if out := c.Sh("hostler get machine web"); !strings.Contains(out, "running") {
		c.Errorf("after cloud-init's end: %s", out)
	}
	c.HasNginx()
	id := c.Running("web")
	c.Served("web")
	c.NextInstances("web", id)

	// Without a wait, too.
	c.Boot("four", strings.Replace(c.Machines("bare"), "image:", "imge:", 1))
	c.Ended("error")
	c.Boot("five", c.Machines("bare"))
	c.Ended("done")
	c.Running("bare")
}

// exampleMakesAHost has the example of plain cloud-config, which installs from an apt
// repository.
func exampleMakesAHost(c *cloud) {
	suite := harness.HostRelease(c).Suite
	root, key := harness.Repository(c, harness.Package(c, ""), suite)
	c.Boot("one", c.Example(c.serve(root), key))
	c.Ended("done")
	if out := c.Sh("hostler get machine web; apt-cache policy hostler"); !strings.Contains(out, "running") || !strings.Contains(out, suite+"/main") {
		c.Errorf("after cloud-init's end: %s", out)
	}
	c.Served("web")
}

// serve serves a folder to the host and returns its URL.
func (c *cloud) serve(folder string) string {
	c.Helper()
	gateway := strings.Fields(c.Sh("ip -4 route show default"))[2]
	return "http://" + gateway + ":" + harness.Serve(c, gateway, folder)
}
