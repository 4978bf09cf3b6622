//go:build integration

package deb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// copiesOfAHost copies a host with a machine, before and after `hostler clean`.
func copiesOfAHost(t *testing.T, site *cloud) {
	site.install()
	site.host.Write("/root/site.yaml", site.Machines("web"))
	site.Sh("hostler apply -f /root/site.yaml --wait --timeout 5m")
	id := site.Running("web")
	site.host.Stop()
	t.Run("after a clean", func(t *testing.T) { copiesOfACleanHost(t, site.copied(t, "golden")) })
	site.host.Start()
	site.Sh(": >/etc/machine-id")
	site.host.Stop()
	t.Run("with a machine", func(t *testing.T) { copiesOfAHostWithAMachine(t, site, id) })
}

// golden checks `hostler clean` on a host with a machine that is deleted then.
func (c *cloud) golden() {
	c.Helper()
	refused := func(command, reason string) {
		c.Helper()
		out, err := c.Try(command + " 2>&1")
		if want := strings.HasPrefix(command, "hostler"); (err != nil) != want || !strings.Contains(out, reason) {
			c.Errorf("%s: %v\n%s", command, err, out)
		}
		c.Sh("systemctl is-active hostlerd && test -e /var/lib/hostler/store-id && hostler status")
	}
	refused("hostler clean", "it still has machine/web\n")
	refused("cloud-init clean --logs", "it still has machine/web\n")
	c.Running("web")
	c.Sh("hostler delete machine/web --wait && mkdir /root/images && mount --bind /root/images /var/lib/hostler/images && touch /root/images/mine")
	refused("hostler clean", "something is mounted on /var/lib/hostler/images")
	c.Sh("test -e /root/images/mine && umount /var/lib/hostler/images")
	if out := c.Sh("cloud-init clean --logs --machine-id 2>&1"); !strings.Contains(out, "the record of this host is removed") {
		c.Errorf("cloud-init clean: %s", out)
	}
	c.Sh("systemctl is-enabled hostlerd && ! systemctl is-active hostlerd && test -e /etc/hostler/hostler.yaml")
	if out := strings.Fields(c.Sh("ls -A /var/lib/hostler; ls -A /run/hostler")); strings.Contains(strings.Join(out, " "), "store") || strings.Contains(strings.Join(out, " "), "state.db") {
		c.Errorf("left are %q", out)
	}
}

// copiesOfACleanHost makes two copies, which are two hosts: neither says that it is a
// copy, and both run the machines that are declared there. A copy whose machine is
// released starts with an empty record, and its former instance is foreign.
func copiesOfACleanHost(t *testing.T, c *cloud) {
	original := c.Sh("cat /var/lib/hostler/store-id")
	c.golden()
	c.host.Stop()

	stores := map[string]bool{original: true}
	for _, name := range []string{"first", "second"} {
		copied := c.copied(t, name)
		harness.Wait(t, "the agent of "+name, time.Minute, func() error {
			_, err := copied.Try("hostler status")
			return err
		})
		store := copied.Sh("cat /var/lib/hostler/store-id")
		if stores[store] {
			t.Errorf("the store of %s is another host's: %s", name, store)
		}
		stores[store] = true
		if out := copied.Sh("hostler status; hostler get all"); strings.Contains(out, "machine-id") || strings.Contains(out, "web") {
			t.Errorf("%s has a record of the original: %s", name, out)
		}
		copied.Sh("hostler apply -f /root/site.yaml --wait --timeout 5m")
		id := copied.Running("web")

		if name == "second" {
			copied.released(id)
		}
		copied.host.Delete()
	}
}

// copiesOfAHostWithAMachine makes two copies of a host that was not cleaned. Each
// keeps the machine, deletes nothing and names both commands that decide, and each of
// them does.
func copiesOfAHostWithAMachine(t *testing.T, c *cloud, id string) {
	for _, name := range []string{"first", "second"} {
		copied := c.copied(t, name)
		if now := copied.Running("web"); now != id {
			t.Errorf("the machine of %s is another: %s, before %s", name, now, id)
		}
		if out := copied.Sh("hostler status"); !strings.Contains(out, "`hostler adopt --host`") || !strings.Contains(out, "`hostler clean`") {
			t.Errorf("%s does not say what to do:\n%s", name, out)
		}
		if out, err := copied.Try("hostler status --wait --timeout 2m 2>&1; test $? = 2"); err != nil || !strings.Contains(out, "the host is degraded") {
			t.Errorf("status --wait of %s: %v\n%s", name, err, out)
		}
		if name == "second" {
			copied.released(id)
			continue
		}
		if out, err := copied.Try("hostler delete machine/web --wait --timeout 20s 2>&1"); err == nil || copied.instances() != "web,RUNNING" {
			t.Errorf("%s deletes its machine: %v\n%s", name, err, out)
		}
		copied.Sh("hostler adopt --host")
		harness.Wait(t, "the removal", time.Minute, func() error {
			if out := copied.instances(); out != "" {
				return errors.New(out)
			}
			return nil
		})
		copied.host.Delete()
	}
}

// instances returns the name and the state of the hypervisor's only instance, or
// nothing.
func (c *cloud) instances() string {
	c.Helper()
	list := c.Instances()
	return list[:max(0, strings.LastIndex(list, ","))]
}

// released cleans a host with a machine of that uid, whose instance stays.
func (c *cloud) released(id string) {
	c.Helper()
	if out := c.Sh("hostler clean --release"); !strings.Contains(out, "machine/web released") || !strings.Contains(out, "hostlerd stays stopped") {
		c.Errorf("clean --release: %s", out)
	}
	if out := c.instances(); out != "web,RUNNING" {
		c.Errorf("the released instance: %s", out)
	}
	c.Sh("systemctl start hostlerd && hostler status")
	if out := c.Sh("hostler get machines -o name; hostler status"); strings.Contains(out, "web") || strings.Contains(out, "machine-id") {
		c.Errorf("the released instance has a record: %s", out)
	}
	if out, err := c.Try("hostler apply -f /root/site.yaml --wait --timeout 1m 2>&1"); err == nil || !strings.Contains(out, "hostler adopt "+c.Kind+"/web") {
		c.Errorf("the released instance is not foreign: %v\n%s", err, out)
	}
	if out := c.instances(); out != "web,RUNNING" {
		c.Errorf("the released instance: %s", out)
	}
	if now := c.Sh("hostler get machine web -o json | grep '\"uid\"'"); strings.Contains(now, id) {
		c.Errorf("the machine has its former uid %s", id)
	}
}
