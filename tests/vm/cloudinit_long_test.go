//go:build integration && long

package vm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// cloudLimit bounds the first boot of a cloud image, at which cloud-init installs
// the package and the agent a hypervisor.
const cloudLimit = 40 * time.Minute

// cloud is a VM of a cloud image that gets its user-data from a seed disk.
type cloud struct {
	*harness.Cloud
	vm *machine
}

// way is a way from user-data to a host with its machine.
type way struct {
	name string // becomes a part of paths, in which QEMU takes no comma
	// hostler says that the image has hostler, waits that cloud-init waits for
	// the machine.
	hostler, waits bool
	// userData may use the package, which the host gets from a folder of this
	// machine.
	userData func(c *cloud) string
}

var ways = []way{
	{"cloud-config", false, true, func(c *cloud) string {
		root, key := harness.Repository(c, harness.Package(c, ""), harness.HostRelease(c).Suite)
		return c.Example(c.serve(root), key)
	}},
	{"hostler user-data", false, true, func(c *cloud) string {
		pkg := harness.Package(c, "")
		return c.FromPackage(c.serve(filepath.Dir(pkg)), pkg, c.Machines("web"))
	}},
	{"bare declaration for an image with hostler", true, false, func(c *cloud) string { return c.Machines("web") }},
	{"wait for an image with hostler", true, true, func(c *cloud) string { return c.WithNginx("web") }},
}

// A cloud image becomes a host with its machine in each of the ways. At a boot
// without the user-data and at the one after `cloud-init clean` the machine is
// the same, and nothing restarts it.
func TestCloudInit(t *testing.T) {
	packages := stock
	if harness.HostRelease(t).Name != "debian/12" { // cloud-init runs its programs
		packages += ",systemd-resolved"
	}
	b := baseDisk(t, packages)
	b.daemon.kind = harness.HostRelease(t).Hypervisor()
	b.daemon.client = map[string]string{"lxd": "lxc", "incus": "incus"}[b.daemon.kind]
	golden := ""
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			parent := b.disk
			if way.hostler {
				if golden == "" {
					golden = filepath.Join(t.TempDir(), "none")
					t.Run("image", func(t *testing.T) { golden = withHostler(t, b) })
				}
				parent = golden
			}
			newCloud(t, newMachine(t, b, parent, "")).passes(way)
		})
	}
	if golden != "" {
		_ = os.Remove(golden)
	}
}

// withHostler makes a disk with hostler from that of a cloud image.
func withHostler(t *testing.T, b base) (disk string) {
	t.Helper()
	m := newMachine(t, b, b.disk, payload(t, map[string]string{"hostler.deb": harness.Package(t, "")}))
	m.boot()
	// An empty file gets a new id at the next boot. The option --machine-id of
	// cloud-init 22.4 removes the file, and a root that is mounted read-only at
	// first then gets none, without which networkd has no DHCP client.
	m.timed("the package installed", "tar -xf /dev/vdb -C /root && apt-get -qq update && apt-get -qq -y install /root/hostler.deb </dev/null && rm /root/hostler.deb && cloud-init clean --logs && : >/etc/machine-id")
	m.off("poweroff")
	disk = cache(t, "cloud-hostler.qcow2")
	if err := os.Rename(m.disk(), disk); err != nil {
		t.Fatal(err)
	}
	return disk
}

func newCloud(t *testing.T, m *machine) *cloud {
	t.Helper()
	try := func(script string) (string, error) { return m.guest.run(script, cloudLimit+time.Minute) }
	c := &cloud{&harness.Cloud{TB: t, Try: try, Kind: m.base.daemon.kind, Image: "busybox/1", Patience: cloudLimit}, m}
	c.Boot = func(instance, userData string) {
		m.seed = c.seed(instance, userData)
		m.reboot()
	}
	return c
}

// serve serves a folder to the VM and returns its URL. 10.0.2.2 is this machine
// in QEMU's user-mode network.
func (c *cloud) serve(folder string) string {
	c.Helper()
	return "http://10.0.2.2:" + harness.Serve(c, "127.0.0.1", folder)
}

// seed returns a disk with the user-data of an instance.
func (c *cloud) seed(instance, userData string) (disk string) {
	c.Helper()
	dir := c.TempDir()
	for name, text := range map[string]string{"user-data": userData, "meta-data": "instance-id: " + instance + "\nlocal-hostname: cloud\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			c.Fatal(err)
		}
	}
	disk = filepath.Join(c.TempDir(), "seed.iso")
	harness.Run(c, "genisoimage", "-quiet", "-output", disk, "-volid", "cidata", "-joliet", "-rock", dir)
	return disk
}

// passes boots the host with its user-data, then without, then as a new one. If its
// image has hostler and cloud-init waits, two more instances follow.
func (c *cloud) passes(w way) {
	c.Helper()
	seed := c.seed("one", w.userData(c))
	c.vm.seed = seed
	start := time.Now()
	c.vm.boot()
	c.Ended("done")
	c.vm.Logf("cloud-init done after %.0f s", time.Since(start).Seconds())
	if out := c.Sh("hostler get machine web || true"); w.waits && !strings.Contains(out, "running") {
		c.Errorf("after cloud-init's end: %s", out)
	}
	uid := c.Running("web")
	c.Served("web")
	c.vm.outcome("a cloud image of %s becomes a host, cloud-init is done, and a machine serves a page", harness.HostRelease(c).Name)

	stat := "stat -c '%n %a %U %G %i %Y' /etc/hostler/conf.d/*.yaml"
	if w.name == ways[0].name { // cloud-init itself writes the file anew for a new instance
		stat = "stat -c '%n %a %U %G' /etc/hostler/conf.d/*.yaml && sha256sum /etc/hostler/conf.d/*.yaml"
	}
	files := c.Sh(stat)
	for _, next := range []struct{ what, change, seed string }{
		{"a boot without the user-data", "true", ""},
		{"`cloud-init clean --logs`", "cloud-init clean --logs", seed},
	} {
		c.Sh(next.change)
		c.vm.off("reboot")
		c.vm.seed = next.seed
		c.vm.boot()
		c.Unchanged("web", uid, func() {
			if next.seed != "" {
				c.Ended("done")
			} else if err := c.idle(); err != nil {
				c.Error(err)
			}
		})
		if now := c.Sh(stat); now != files {
			c.Errorf("after %s the declarations are %s, before %s", next.what, now, files)
		}
		c.vm.outcome("after %s nothing has changed, and the machine was started once", next.what)
	}
	if w.hostler && w.waits {
		c.HasNginx()
		c.NextInstances("web", uid)
		c.vm.outcome("nginx and the machine came with one user-data; cloud-init names a mistake in the next instance's user-data; a third instance adds a machine")
	}
}

// idle waits until cloud-init says that it is done or, since no disk has
// user-data, disabled.
func (c *cloud) idle() error {
	out, err := c.Try("cloud-init status --wait")
	if strings.Contains(out, "status: disabled") || strings.Contains(out, "status: done") {
		return nil
	}
	return fmt.Errorf("cloud-init without user-data: %s %w", out, err)
}
