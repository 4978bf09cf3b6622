//go:build integration

package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/failpoint"
	"hostler/tests/harness"
)

// machines is the number of machines of the site.
const machines = 6

// site declares the machines. Each has an address; some have storage and a
// published port.
const site = `version: 1
networks:
  lan: {bridge: br-migrate, addresses: [10.224.9.1/24], forwarding: true, nat: true, dhcp: true}
volumes:
  data: {provider: loop, size: 32MiB}
  raw: {provider: loop, size: 8MiB}
filesystems:
  www: {volume: data, type: ext4}
  logs: {provider: rootfs, size: 16MiB}
machines:
  m1: {type: TYPE, image: IMAGE, memory: 64MiB, networks: {eth0: {network: lan, address: 10.224.9.10/24}}, publish: [{protocol: tcp, host-port: 18090, port: 80}]}
  m2: {type: TYPE, image: IMAGE, networks: {eth0: {network: lan}}, storage: [{filesystem: www, path: /srv}]}
  m3: {type: TYPE, image: IMAGE, networks: {eth0: {network: lan}}, storage: [{volume: raw}]}
  m4: {type: TYPE, image: IMAGE, networks: {eth0: {network: lan}}, storage: [{filesystem: logs, path: /var/log/app}]}
  m5: {type: TYPE, image: IMAGE, networks: {eth0: {network: lan}}, autostart: false}
  m6: {type: TYPE, image: IMAGE, networks: {eth0: {network: lan}}}
`

// world is an agent beside a private LXD and a private Incus.
type world struct {
	*harness.Agent
	t          *testing.T
	lxd, incus *lxdtest.Server
	image      string
}

func open(t *testing.T) world {
	t.Cleanup(harness.KeepParameters(t))
	file, digest := harness.TinyImage(t)
	w := world{t: t, image: fmt.Sprintf("%q", "file:"+file+"#sha256="+digest)}
	w.lxd = lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.LXD, Driver: "btrfs", NoImage: true})
	w.incus = lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.Incus, Driver: "btrfs", NoImage: true})
	w.Agent = harness.NewAgent(t, w.lxd.Dir)
	w.Env = append(w.Env, "INCUS_DIR="+w.incus.Dir)
	w.Configure("namespace: migrate\nretry-delay: 1s\nstart-retries: 2\n")
	w.Start()
	t.Cleanup(func() {
		if w.Exited() {
			w.Start()
		}
		_, _ = w.Try("delete", "declaration/site", "--wait", "--timeout", "1m")
	})
	w.Run("apply", "--allow", "destroy", "-f", w.site("lxd"), "--wait", "--timeout", "2m")
	return w
}

func (w world) site(kind string) string {
	return w.File("site", strings.NewReplacer("TYPE", kind, "IMAGE", w.image).Replace(site))
}

// fill writes data into each machine, in its root disk and in its storage.
func (w world) fill() {
	w.t.Helper()
	for i := range machines {
		w.Run("exec", fmt.Sprint("m", i+1), "--", "sh", "-ec", `/bin/busybox --install -s /bin
mkdir -p /var/lib/data && cd /var/lib/data && dd if=/dev/urandom of=random bs=64k count=16 2>/dev/null && ln random second && chmod 640 random
ln -s random link; echo $$ > text; touch -d '2020-01-02 03:04:05' random text # backups have whole seconds
for d in /srv /var/log/app; do [ ! -d $d ] || cp random text $d/; done
[ ! -b /dev/hostler-raw ] || dd if=random of=/dev/hostler-raw 2>/dev/null; sync`)
	}
}

// look describes each machine: the checksums of its data, its addresses and its
// identity.
func (w world) look() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, m := range w.rows() {
		sums := w.Run("exec", m.Name, "--", "sh", "-ec", `
cd /var/lib/data && sha256sum random second text && stat -c '%n %a %u %g %h %Y' random text && readlink link
for d in /srv /var/log/app; do [ ! -e $d/random ] || sha256sum $d/random $d/text; done
[ ! -b /dev/hostler-raw ] || head -c 1048576 /dev/hostler-raw | sha256sum; cat /sys/class/net/eth0/address`)
		all[m.Name] = fmt.Sprintf("%s\n%v\n%s\n%v", m.UID, m.Addresses, m.Status, sums)
	}
	return all
}

func (w world) rows() (rows []client.Machine) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.Run("get", "machines", "-o", "json")), &rows); err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// published gets a page from the published port.
func (w world) published() error {
	if _, err := w.Try("exec", "m1", "--", "sh", "-c", "wget -q -O /dev/null http://127.0.0.1/passwd || httpd -p 80 -h /etc"); err != nil {
		return err
	}
	out, err := exec.Command("curl", "-sS", "--max-time", "3", "http://10.224.9.1:18090/passwd").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "root:") {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// arm has the next agent killed at the point.
func (w world) arm(plan string) {
	w.Env = slices.DeleteFunc(w.Env, func(v string) bool { return strings.HasPrefix(v, "HOSTLER_FAILPOINT") })
	if plan != "" {
		w.Env = append(w.Env, "HOSTLER_FAILPOINTS="+plan, "HOSTLER_FAILPOINT_LOG="+filepath.Join(w.Dir, "hits"))
	}
	w.Agent.Env = w.Env
	w.Launch("failpoint")
}

// Six machines move, and the agent is killed at every step: all data, addresses
// and the published port are as before.
func TestKilledAtEveryStep(t *testing.T) {
	w := open(t)
	w.fill()
	before := w.look()
	harness.Wait(t, "the published port", 20*time.Second, w.published)
	if out := w.Run("migrate", "lxd", "incus"); strings.Count(out, "stopped during the copy") != machines {
		t.Fatalf("the plan:\n%s", out)
	}
	w.Stop()
	var points []failpoint.Point
	for range rounds {
		points = append(points, failpoint.Migrate...)
	}
	next := func() {
		plan := ""
		if len(points) > 0 {
			plan, points = string(points[0])+"=kill#1", points[1:]
		}
		w.arm(plan)
		harness.Wait(t, "the agent", time.Minute, func() error {
			if w.Exited() {
				return nil
			}
			_, err := w.Try("status")
			return err
		})
	}
	next()
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	said, err := w.Try("migrate", "lxd", "incus", "-y", "--timeout", "1s") // the first point is hit meanwhile
	if strings.Count(said, "yes") != machines {
		t.Fatalf("%s: %v", said, err)
	}
	deaths := 0
	harness.Wait(t, "the migration", 8*time.Minute, func() error {
		if w.Exited() {
			deaths++
			next()
		}
		text, err := w.Try("get", "machines", "-o", "json")
		var rows []client.Machine
		if err == nil {
			err = json.Unmarshal([]byte(text), &rows)
		}
		for _, m := range rows {
			if m.Migration == nil || m.Migration.Phase == spec.MigrationFailed {
				t.Fatalf("%s: %+v", m.Name, m.Migration)
			}
			if m.Migration.Phase != spec.MigrationDone || m.Status != spec.MachineRunning {
				err = errors.Join(err, fmt.Errorf("%s: %s, %s %s", m.Name, m.Migration.Phase, m.Status, m.Message))
			}
		}
		return err
	})
	hits, _ := os.ReadFile(filepath.Join(w.Dir, "hits"))
	for _, point := range failpoint.Migrate {
		if !strings.Contains(string(hits), string(point)) {
			t.Errorf("%s was never hit", point)
		}
	}
	if want := rounds * len(failpoint.Migrate); deaths != want {
		t.Errorf("the agent died %d times, not %d", deaths, want)
	}
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.compare(before, w.look())
	harness.Wait(t, "the published port", 20*time.Second, w.published)
	if names := w.lxd.Names(); len(names) > 0 {
		t.Errorf("left in LXD: %v", names)
	}
	if names := w.incus.Names(); len(names) != machines {
		t.Errorf("in Incus: %v", names)
	}
	// The former document and the changed document declare the same machines.
	for _, kind := range []string{"lxd", "incus"} {
		if code, out := w.Exit("plan", "-f", w.site(kind)); code != 0 {
			t.Errorf("a document of type %s changes something:\n%s", kind, out)
		}
	}
}

// A machine whose move fails stays in LXD as it was, also if it fails when its
// original was marked as moved already.
func TestFailedMove(t *testing.T) {
	w := open(t)
	w.fill()
	before := w.look()
	w.Stop()
	w.arm("migrate-imported=error#1;migrate-restamped=error#1")
	w.Ready()
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	out, err := w.Try("migrate", "lxd", "incus", "m1", "m2", "m5", "-y", "--timeout", "2m")
	for _, name := range []string{"m1", "m2"} {
		if err == nil || !strings.Contains(err.Error()+out, "machine/"+name+" stays of type lxd") {
			t.Errorf("%v: %s", err, out)
		}
	}
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.compare(before, w.look())
	if in := w.incus.Names(); !slices.Equal(in, []string{"m5"}) {
		t.Errorf("in Incus: %v", in)
	}
	if code, out := w.Exit("plan", "-f", w.site("lxd")); code != 0 {
		t.Errorf("not as declared:\n%s", out)
	}
}

func (w world) compare(before, after map[string]string) {
	w.t.Helper()
	for name, was := range before {
		if after[name] != was {
			w.t.Errorf("%s was\n%s\nand is\n%s", name, was, after[name])
		}
	}
}
