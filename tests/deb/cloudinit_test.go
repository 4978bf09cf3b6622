//go:build integration

package deb_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// cloud is a stock host with a cloud-init that reads its user-data from a folder.
type cloud struct {
	*testing.T
	host *harness.Host
	// kind is the type of machines that the release has packages for, image a
	// reference to their image.
	kind, image string
}

const seed = "/var/lib/cloud/seed/nocloud"

// newCloud starts a host with the packages that a cloud image has.
func newCloud(t *testing.T, lxd *harness.LXD, name string) *cloud {
	c := &cloud{T: t, host: lxd.StartHost(name), kind: "incus"}
	if harness.HostRelease(t).Name == "debian/12" {
		c.kind = "lxd"
	}
	c.host.Sh("apt-get -qq update")
	c.host.Install("cloud-init", "openssh-server", "sudo")
	if harness.HostRelease(t).Name != "debian/12" { // cloud-init runs their programs
		c.host.Install("systemd-resolved", "lsb-release")
	}
	image, digest := harness.TinyImage(t)
	c.host.Push(image, "/root/tiny.tar.gz")
	c.image = "file:/root/tiny.tar.gz#sha256=" + digest
	c.host.Sh("mkdir -p " + seed)
	c.host.Write("/etc/cloud/cloud.cfg.d/90-test.cfg", "datasource_list: [NoCloud, None]\napt: {preserve_sources_list: true}\nlocale: false\n")
	return c
}

// machines returns a declaration of the named machines.
func (c *cloud) machines(names ...string) string {
	lines := []string{"#hostler-config", "version: 1", "machines:"}
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("  %s: {type: %s, image: '%s'}", name, c.kind, c.image))
	}
	return strings.Join(lines, "\n") + "\n"
}

// install installs the package.
func (c *cloud) install() {
	c.Helper()
	c.host.Push(harness.Package(c, ""), "/root/hostler.deb")
	c.host.Install("/root/hostler.deb")
}

// boot boots the host as the named instance with user-data.
func (c *cloud) boot(instance, userData string) {
	c.Helper()
	c.host.Write(seed+"/meta-data", "instance-id: "+instance+"\nlocal-hostname: cloud\n")
	c.host.Write(seed+"/user-data", userData)
	c.host.Reboot()
}

// ended waits for the end of cloud-init and checks its result.
func (c *cloud) ended(want string) (long string) {
	c.Helper()
	harness.Wait(c, "the start of cloud-init", time.Minute, func() error {
		_, err := c.host.Try("test -e /run/cloud-init/status.json")
		return err
	})
	out, err := c.host.Try("timeout 330 cloud-init status --wait --long")
	// Without a seed, newer versions are done with a warning of their own.
	if fallback := strings.Contains(out, "Used fallback datasource"); want == "done" && fallback && !strings.Contains(out, "hostler") {
		err = nil
	}
	if (err != nil) != (want != "done") || !strings.Contains(out, "status: "+want) {
		c.Fatalf("cloud-init: %v\n%s\n%s", err, out, c.host.Sh("tail -n 60 /var/log/cloud-init-output.log; grep -E 'WARN|ERR' /var/log/cloud-init.log | tail -n 20; journalctl --no-pager -n 40 -u hostlerd || true"))
	}
	return out
}

// running waits until the agent has started the machine, and returns its uid.
func (c *cloud) running(name string) string {
	c.Helper()
	harness.Wait(c, name, 3*time.Minute, func() error {
		if out, err := c.host.Try("hostler get machine " + name); err != nil || !strings.Contains(out, "running") {
			return fmt.Errorf("%s %v", out, err)
		}
		return nil
	})
	return c.host.Sh("hostler get machine " + name + " -o json | grep '\"uid\"'")
}

// served starts a web server in the machine and fetches a page of it.
func (c *cloud) served(name string) {
	c.Helper()
	c.host.Sh("setsid hostler exec " + name + " -- httpd -f -v -p 80 -h /etc >/root/httpd.log 2>&1 </dev/null &")
	harness.Wait(c, "a page of "+name, time.Minute, func() error {
		out, err := c.host.Try(`address=$(hostler exec ` + name + ` -- ip -4 -o addr show dev eth0 | sed 's,.*inet \([0-9.]*\).*,\1,')
			rm -f /root/page; /usr/lib/apt/apt-helper -o Acquire::http::Proxy=DIRECT -o Acquire::Retries=0 download-file "http://$address/passwd" /root/page && cat /root/page ||
			{ cat /root/httpd.log; exit 1; }`)
		if err != nil || !strings.Contains(out, "root:x:0:0:") {
			return fmt.Errorf("%s %v", out, err)
		}
		return nil
	})
}

// reported checks the times of the machine and the archive for a bug report.
func (c *cloud) reported(name string) {
	c.Helper()
	for _, step := range []string{"prepare type/" + c.kind, "create machine/" + name, "boot machine/" + name} {
		if out := c.host.Sh("hostler analyze blame"); !strings.Contains(strings.Join(strings.Fields(out), " "), step) {
			c.Errorf("no %q in\n%s", step, out)
		}
	}
	c.host.Sh("cd /root && rm -rf hostler-logs-* && hostler collect-logs && tar -xzf hostler-logs-*.tar.gz && rm hostler-logs-*.tar.gz")
	if out := c.host.Sh("cat /root/hostler-logs-*/collected.txt"); strings.Contains(out, "missing") {
		c.Errorf("the archive is not whole: %s", out)
	}
	for file, want := range map[string]string{"plan.json": `"steps"`, "journal.txt": "The agent is ready", "declarations/cloud-init-host.json": name, "machines/" + name + ".json": "took", "cloud-init-status.json": "modules-final"} {
		if out, err := c.host.Try("cat /root/hostler-logs-*/" + file); err != nil || !strings.Contains(out, want) {
			c.Errorf("%s lacks %q: %s", file, want, out)
		}
	}
	if out := c.host.Sh("sh /usr/share/bug/hostler/script 3>&1"); !strings.Contains(out, "hostler-logs.tar.gz has the logs") {
		c.Errorf("the report is %s", out)
	}
}

// A stock host gets the user-data of `hostler user-data`. cloud-init installs
// the package and ends when the machine runs. Later boots without the user-data
// change nothing.
func TestCloudInitMakesAHost(t *testing.T) {
	c := newCloud(t, harness.StartLXD(t, 47), "cloud")
	pkg := harness.Package(t, "")
	sum := strings.Fields(harness.Run(t, "sha256sum", pkg))[0]
	declaration := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(declaration, []byte(c.machines("web")), 0o600); err != nil {
		t.Fatal(err)
	}
	c.boot("one", harness.Run(t, filepath.Join(harness.Binaries(t, ""), "hostler"), "user-data", "-f", declaration,
		"--deb", serve(t, c.host, filepath.Dir(pkg))+"/"+filepath.Base(pkg)+"#sha256="+sum, "--wait", "5m"))
	c.ended("done")
	// Without a further wait, since cloud-init has waited for the machine.
	if out := c.host.Sh("hostler get machine web"); !strings.Contains(out, "running") {
		t.Errorf("after cloud-init's end: %s", out)
	}
	id := c.running("web")
	c.served("web")
	c.reported("web")
	stat := "stat -c '%a %U %G %i %Y' /etc/hostler/conf.d/cloud-init-host.yaml"
	file := c.host.Sh(stat)
	if !strings.HasPrefix(file, "640 root hostler-admin ") {
		t.Errorf("the declaration is %s", file)
	}
	for _, change := range []string{"rm -r " + seed, "cloud-init clean --logs"} {
		c.host.Sh(change)
		c.host.Reboot()
		c.ended("done")
		if now := c.running("web"); now != id {
			t.Errorf("after %s the machine is another: %s, before %s", change, now, id)
		}
		if now := c.host.Sh(stat); now != file {
			t.Errorf("after %s the declaration is %s, before %s", change, now, file)
		}
	}
	if link := c.host.Sh("readlink /var/lib/cloud/handlers/hostler_part_handler.py"); strings.TrimSpace(link) != "/usr/share/hostler/cloud-init/hostler_part_handler.py" {
		t.Errorf("the handler's link leads to %q", link)
	}
}

// On an image that has hostler, cloud-init and the agent install packages at the
// same boot: the agent waits for cloud-init, which waits for the machine. A
// mistake in the user-data is an error of cloud-init. Changed user-data of a new
// instance changes the machines.
func TestCloudInitOnAnImageWithHostler(t *testing.T) {
	c := newCloud(t, harness.StartLXD(t, 48), "image")
	c.install()
	indented := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
	}
	archive := func(declaration, more string) string {
		return "#cloud-config-archive\n" + more + "- type: text/hostler-config\n  filename: site.yaml\n  X-Hostler-Wait: 5m\n  content: |\n" + indented(declaration)
	}

	c.boot("one", archive(c.machines("web"), "- type: text/cloud-config\n  content: |\n"+indented("#cloud-config\npackages: [nginx]")))
	harness.Wait(t, "the lock in the status", 3*time.Minute, func() error {
		if out, err := c.host.Try("hostler status"); err != nil || !strings.Contains(out, "packages of cloud-init") {
			return errors.New(out)
		}
		return nil
	})
	c.ended("done")
	if out := c.host.Sh("hostler get machine web; dpkg -s nginx | grep ^Status"); !strings.Contains(out, "running") || !strings.Contains(out, "install ok installed") {
		t.Errorf("after cloud-init's end: %s", out)
	}
	if out, err := c.host.Try("grep -i 'get lock' /var/log/cloud-init-output.log /var/log/cloud-init.log"); err == nil {
		t.Errorf("a fight over apt: %s", out)
	}
	id := c.running("web")
	c.served("web")

	c.boot("two", archive("#hostler-config\nversion: 1\nmachines:\n  web: {type: "+c.kind+", imge: debian/12}\n", ""))
	out := c.ended("error")
	if harness.HostRelease(t).Name == "debian/12" { // its result has no messages of handlers
		out = c.host.Sh("cat /var/log/cloud-init-output.log")
	}
	if !strings.Contains(out, "cloud-init-site.yaml:4:") || !strings.Contains(out, "imge") {
		t.Errorf("cloud-init does not name the mistake:\n%s", out)
	}
	if now := c.running("web"); now != id {
		t.Errorf("after a mistake the machine is another: %s, before %s", now, id)
	}

	c.boot("three", archive(c.machines("web", "next"), ""))
	c.ended("done")
	if out := c.host.Sh("hostler get machine next"); !strings.Contains(out, "running") {
		t.Errorf("after cloud-init's end: %s", out)
	}
	if now := c.running("web"); now != id {
		t.Errorf("with a new instance the machine is another: %s, before %s", now, id)
	}

	c.boot("four", c.machines("bare"))
	c.ended("done")
	c.running("bare")
}

// The example of plain cloud-config makes a host from an apt repository.
func TestCloudInitExample(t *testing.T) {
	c := newCloud(t, harness.StartLXD(t, 49), "example")
	c.host.Install("gnupg")
	suite := harness.HostRelease(t).Suite
	root, key := repository(t, harness.Package(t, ""), suite)
	example, err := os.ReadFile(filepath.Join(harness.Root(t), "examples/cloud-init/packages.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(example), "-----BEGIN PGP PUBLIC KEY BLOCK-----")
	_, after, found := strings.Cut(rest, "-----END PGP PUBLIC KEY BLOCK-----")
	if !found || !strings.Contains(before, "https://deb.example.org/debian $RELEASE main") || !strings.Contains(after, "type: lxd") || !strings.Contains(after, "image: debian/12") {
		t.Fatalf("the example is another:\n%s", example)
	}
	before = strings.Replace(before, "https://deb.example.org/debian", serve(t, c.host, root), 1)
	after = strings.NewReplacer("type: lxd", "type: "+c.kind, "image: debian/12", "image: "+c.image).Replace(after)
	c.boot("one", before+strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n        ")+after)
	c.ended("done")
	if out := c.host.Sh("hostler get machine web; apt-cache policy hostler"); !strings.Contains(out, "running") || !strings.Contains(out, suite+"/main") {
		t.Errorf("after cloud-init's end: %s", out)
	}
	c.served("web")
}

// repository makes a signed apt repository with a package. It returns its folder
// and its armoured public key.
func repository(t *testing.T, pkg, suite string) (root, key string) {
	t.Helper()
	root = t.TempDir()
	home, err := os.MkdirTemp("", "gpg") //nolint:usetesting // the path of gpg-agent's socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = harness.Try(nil, "gpgconf", "--homedir", home, "--kill", "all")
		_ = os.RemoveAll(home)
	})
	harness.Run(t, "sh", "-ec", `
		cd "$1"
		mkdir -p pool "dists/$3/main/binary-amd64"
		cp "$2" pool/hostler.deb
		dpkg-scanpackages -m pool >"dists/$3/main/binary-amd64/Packages" 2>/dev/null
		cd "dists/$3"
		packages=main/binary-amd64/Packages
		printf 'Suite: %s\nCodename: %s\nComponents: main\nArchitectures: amd64\nDate: %s\nSHA256:\n %s %s %s\n' "$3" "$3" "$(date -Ru)" \
			"$(sha256sum <$packages | cut -c1-64)" "$(stat -c %s $packages)" $packages >Release
		export GNUPGHOME="$4"
		gpg --quiet --batch --pinentry-mode loopback --passphrase '' --quick-generate-key test@example.org ed25519 sign never
		gpg --quiet --batch --clearsign -o InRelease Release`, "sh", root, pkg, suite, home)
	return root, harness.Run(t, "gpg", "--homedir", home, "--armor", "--export")
}

// serve serves a folder to a host and returns its URL.
func serve(t *testing.T, host *harness.Host, folder string) string {
	t.Helper()
	gateway := strings.Fields(host.Sh("ip -4 route show default"))[2]
	listener, err := net.Listen("tcp", gateway+":0") //nolint:noctx // the test's life
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(folder)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}
