package harness

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Cloud is a host that cloud-init sets up, a container or a VM.
type Cloud struct {
	testing.TB
	// Try runs a shell script on the host as root.
	Try func(script string) (string, error)
	// Kind is the type of the host's machines, Image a reference to their image.
	Kind, Image string
	// Patience bounds the wait for cloud-init, and for a machine.
	Patience time.Duration
	// Boot boots the host as the named instance with user-data.
	Boot func(instance, userData string)
}

// Sh is Try for scripts that must succeed.
func (c *Cloud) Sh(script string) string {
	c.Helper()
	out, err := c.Try(script)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// Machines returns a declaration of the named machines.
func (c *Cloud) Machines(names ...string) string {
	lines := []string{"#hostler-config", "version: 1", "machines:"}
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("  %s: {type: %s, image: '%s'}", name, c.Kind, c.Image))
	}
	return strings.Join(lines, "\n") + "\n"
}

// Ended waits for the end of cloud-init and checks its result, done or error.
func (c *Cloud) Ended(want string) (long string) {
	c.Helper()
	Wait(c, "the start of cloud-init", c.Patience, func() error {
		_, err := c.Try("test -e /run/cloud-init/status.json")
		return err
	})
	out, err := c.Try(fmt.Sprintf("timeout %.0f cloud-init status --wait --long", c.Patience.Seconds()+30))
	// Without a seed, newer versions are done with a warning of their own.
	if fallback := strings.Contains(out, "Used fallback datasource"); want == "done" && fallback && !strings.Contains(out, "hostler") {
		err = nil
	}
	if (err != nil) != (want != "done") || !strings.Contains(out, "status: "+want) {
		logs, _ := c.Try("tail -n 60 /var/log/cloud-init-output.log; grep -E 'WARN|ERR' /var/log/cloud-init.log | tail -n 20; journalctl --no-pager -n 40 -u hostlerd")
		c.Fatalf("cloud-init: %v\n%s\n%s", err, out, logs)
	}
	return out
}

// Running waits until the agent has started the machine, and returns its uid.
func (c *Cloud) Running(name string) string {
	c.Helper()
	var all []struct{ Status, UID, Message string }
	Wait(c, name, c.Patience, func() error {
		out, err := c.Try("hostler get machine " + name + " -o json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &all)
		}
		if err == nil && (len(all) != 1 || all[0].Status != "running") { // a message may have the word, too
			err = fmt.Errorf("it is %+v", all)
		}
		return err
	})
	return all[0].UID
}

// Instances lists the names, states and first processes of the hypervisor's
// instances, e.g. "web,RUNNING,4711".
func (c *Cloud) Instances() string {
	client := map[string]string{"incus": "incus", "lxd": "lxc"}[c.Kind]
	out, err := c.Try(client + " list -f csv -c nsp")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(out)
}

// Started waits until the only instance runs, and returns it as Instances does.
func (c *Cloud) Started(name string) (instance string) {
	c.Helper()
	Wait(c, "the start of "+name, c.Patience, func() error {
		if instance = c.Instances(); !strings.HasPrefix(instance, name+",RUNNING,") || strings.Contains(instance, "\n") {
			return fmt.Errorf("the instances are %q", instance)
		}
		return nil
	})
	return instance
}

// Unchanged checks after a start of the host that the agent restarts no machine
// and creates none: from its first start on, the machine runs as one process
// until cloud-init and the agent are done.
func (c *Cloud) Unchanged(name, uid string, done func()) {
	c.Helper()
	first := c.Started(name)
	done()
	c.Sh(fmt.Sprintf("hostler wait --all --timeout %.0fs", c.Patience.Seconds()))
	if now := c.Instances(); now != first {
		c.Errorf("the instance %s is %s after the passes of cloud-init and the agent", first, now)
	}
	if now := c.Running(name); now != uid {
		c.Errorf("the machine is another: %s, before %s", now, uid)
	}
}

// WithNginx returns user-data that waits for the named machines, whose declaration
// it has, and has cloud-init install nginx.
func (c *Cloud) WithNginx(names ...string) string {
	return c.Archive(c.Machines(names...), "- type: text/cloud-config\n  content: |\n"+Indented("#cloud-config\npackages: [nginx]"))
}

// HasNginx checks that cloud-init installed nginx and met no lock of apt.
func (c *Cloud) HasNginx() {
	c.Helper()
	if out := c.Sh("dpkg -s nginx | grep ^Status"); !strings.Contains(out, "install ok installed") {
		c.Errorf("nginx is not installed: %s", out)
	}
	if out, err := c.Try("grep -i 'get lock' /var/log/cloud-init-output.log /var/log/cloud-init.log"); err == nil {
		c.Errorf("a fight over apt: %s", out)
	}
}

// NextInstances boots the host, whose image has hostler and which has a machine,
// as two more instances. A mistake in the user-data is an error of cloud-init and
// changes no machine. Then the machines follow the user-data.
func (c *Cloud) NextInstances(name, uid string) {
	c.Helper()
	c.Boot("two", c.Archive("#hostler-config\nversion: 1\nmachines:\n  "+name+": {type: "+c.Kind+", imge: debian/12}\n", ""))
	out := c.Ended("error")
	if HostRelease(c).Name == "debian/12" { // its result has no messages of handlers
		out = c.Sh("cat /var/log/cloud-init-output.log")
	}
	if !strings.Contains(out, "cloud-init-site.yaml:4:") || !strings.Contains(out, "imge") {
		c.Errorf("cloud-init does not name the mistake:\n%s", out)
	}
	if now := c.Running(name); now != uid {
		c.Errorf("after a mistake the machine is another: %s, before %s", now, uid)
	}

	c.Boot("three", c.Archive(c.Machines(name, "next"), ""))
	c.Ended("done")
	if out := c.Sh("hostler get machine next"); !strings.Contains(out, "running") {
		c.Errorf("after cloud-init's end: %s", out)
	}
	if now := c.Running(name); now != uid {
		c.Errorf("with a new instance the machine is another: %s, before %s", now, uid)
	}
}

// Served starts a web server in the machine and fetches a page of it.
func (c *Cloud) Served(name string) {
	c.Helper()
	c.Sh("setsid hostler exec " + name + " -- httpd -f -v -p 80 -h /etc >/root/httpd.log 2>&1 </dev/null &")
	Wait(c, "a page of "+name, c.Patience, func() error {
		out, err := c.Try(`address=$(hostler exec ` + name + ` -- ip -4 -o addr show dev eth0 | sed 's,.*inet \([0-9.]*\).*,\1,')
			rm -f /root/page; /usr/lib/apt/apt-helper -o Acquire::http::Proxy=DIRECT -o Acquire::Retries=0 download-file "http://$address/passwd" /root/page && cat /root/page ||
			{ cat /root/httpd.log; exit 1; }`)
		if err != nil || !strings.Contains(out, "root:x:0:0:") {
			return fmt.Errorf("%s %v", out, err)
		}
		return nil
	})
}
