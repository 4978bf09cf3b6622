//go:build integration

package machines

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxc/lxctest"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/behaviour"
	"hostler/tests/harness"
)

// Machines of classic LXC pass the suite that every container type passes. They
// have no daemon that could hang.
func TestBehaviourOfLXC(t *testing.T) {
	behaviour.Run(t, func(t *testing.T) behaviour.World { return openLXC(t) }, ofLXC...)
}

// A guest that reboots itself has its filesystem before its init begins, and is
// started at once: LXC leaves the start to the agent. S24.
func TestRebootOfLXCWithStorage(t *testing.T) {
	w := openLXC(t)
	image := filepath.Join(w.a.Dir, "boots.tar")
	if err := lxdtest.BuildTiny(image, strings.Replace(lxdtest.TinyInit, "echo init up\n", "grep -c ' /srv ' /proc/mounts >>/boots\necho init up\n", 1)); err != nil {
		t.Fatal(err)
	}
	w.a.Start()
	declared := func(more string) string {
		return w.a.File("web", "version: 1\nfilesystems:\n  www: {provider: tmpfs, size: 1MiB}\nmachines:\n  web: {type: lxc, image: '"+
			w.reference(image, image)+"', storage: [{filesystem: www, path: /srv}]"+more+"}\n")
	}
	w.a.Run("apply", "--allow", "destroy", "-f", declared(""), "--wait", "--timeout", "2m")
	w.reboot("1\n1\n")
	if code, out := w.a.Exit("plan", "-f", declared("")); code != 0 {
		t.Errorf("then a plan exits with %d:\n%s", code, out)
	}

	// The reboot makes a change that waits for a restart. Before and after it, the files
	// belong to the guest's root.
	if code, out := w.a.Exit("apply", "-f", declared(", privileged: true"), "--wait", "--timeout", "1m"); code != 1 || !strings.Contains(out, "--allow restart") {
		t.Errorf("the change exits with %d:\n%s", code, out)
	}
	w.owns(false)
	w.reboot("1\n1\n1\n")
	w.owns(true)

	// With a consent the filesystem gets its other owners before the restart.
	for _, more := range []string{"", ", privileged: true", "", ", privileged: true"} {
		w.a.Run("apply", "--allow", "restart", "-f", declared(more), "--wait", "--timeout", "1m")
		w.owns(more != "")
	}
	if events := w.a.Run("events", "machine/web"); strings.Contains(events, "Failed") {
		t.Errorf("its events:\n%s", events)
	}
}

// owns fails unless /srv belongs to the root of web, and that root is the host's if web
// is privileged.
func (w *classic) owns(privileged bool) {
	w.t.Helper()
	out := w.a.Run("exec", "web", "--", "sh", "-c", "/bin/busybox stat -c %u /srv; cat /proc/self/uid_map")
	if owner := strings.Fields(out); owner[0] != "0" || (owner[2] == "0") != privileged {
		w.t.Errorf("its root is user %s of the host, and in it /srv belongs to user %s", owner[2], owner[0])
	}
}

// reboot reboots web from inside. Then each of its boots has seen so many filesystems.
func (w *classic) reboot(boots string) {
	w.t.Helper()
	_, _ = w.a.Try("exec", "web", "--", "/bin/busybox", "reboot", "-f")
	saw := ""
	harness.Wait(w.t, "its boot", time.Minute, func() (err error) {
		if saw, err = w.a.Try("exec", "web", "--", "cat", "/boots"); err == nil && len(saw) < len(boots) {
			err = fmt.Errorf("it has booted with %q", saw)
		}
		return err
	})
	if saw != boots {
		w.t.Errorf("of /srv its boots saw %q", saw)
	}
	w.a.Run("wait", "machine/web", "--for", "ready", "--timeout", "1m")
}

// classic is a private host for classic LXC with an agent on it.
type classic struct {
	*lxctest.Host
	t     *testing.T
	a     *harness.Agent
	image string
	later string // the file of Later
}

func openLXC(t *testing.T) *classic {
	t.Helper()
	w := &classic{t: t, a: harness.NewAgent(t, t.TempDir())}
	w.Host = lxctest.Start(t, filepath.Join(w.a.Dir, "lxc"), "t"+strings.ToLower(rand.Text()[:10]))
	w.a.Prefix = w.Prefix()
	w.image = filepath.Join(w.a.Dir, "tiny.tar")
	w.later = filepath.Join(w.a.Dir, "later.tar")
	for path, init := range map[string]string{w.image: "", w.later + ".away": lxdtest.TinyInit + "# another\n"} {
		if err := lxdtest.BuildTiny(path, init); err != nil {
			t.Fatal(err)
		}
	}
	w.Configure("")
	return w
}

func (w *classic) Type() string          { return "lxc" }
func (w *classic) Agent() *harness.Agent { return w.a }
func (w *classic) Image() string         { return w.reference(w.image, w.image) }
func (w *classic) Another() string       { return "busybox/1" }
func (w *classic) Later() string         { return w.reference(w.later, w.later+".away") }
func (w *classic) Greeting() string      { return "init up" }

// reference names a file whose content stands in another.
func (w *classic) reference(path, content string) string {
	w.t.Helper()
	data, err := os.ReadFile(content)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("file:%s#sha256=%x", path, sha256.Sum256(data))
}

func (w *classic) Supply() {
	if err := os.Rename(w.later+".away", w.later); err != nil {
		w.t.Fatal(err)
	}
}

// Configure gives the agent a namespace of its own: the cgroups of guests are named
// after it.
func (w *classic) Configure(more string) {
	w.a.Configure("namespace: " + w.Namespace + "\nretry-delay: 1s\nstart-retries: 2\n" + more)
}

func (w *classic) Live() behaviour.Change {
	return behaviour.Change{From: ", cpus: 1, memory: 64MiB", To: ", cpus: 2, memory: 96MiB", Made: func(name string) error {
		return errors.Join(w.limited(name, "cpu", "cpu.cfs_quota_us", "cpu.max", "200000"), w.limited(name, "memory", "memory.limit_in_bytes", "memory.max", fmt.Sprint(96<<20)))
	}}
}

// limited compares a limit of a guest's cgroup, on either version.
func (w *classic) limited(name, controller, v1, v2, want string) error {
	dir := "lxc.payload." + w.Namespace + "." + name
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, dir, v1))
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, v2))
	}
	if err == nil && strings.Fields(string(text))[0] != want {
		err = fmt.Errorf("%s has %s %q, not %s", name, controller, text, want)
	}
	return err
}

func (w *classic) Restart() behaviour.Change {
	return behaviour.Change{From: ", cpus: 2, memory: 96MiB", To: ", cpus: 2, memory: 96MiB, nesting: true", Made: func(name string) error {
		if config := w.Host.Look(name).Config; !strings.Contains(config, " dev/.lxc/proc ") {
			return fmt.Errorf("%s is not nesting:\n%s", name, config)
		}
		return nil
	}}
}

// PID is the process that LXC runs for the guest web.
func (w *classic) PID() int { return w.Monitor("web") }

func (w *classic) Look(name string) behaviour.Instance {
	w.t.Helper()
	i := w.Host.Look(name)
	return behaviour.Instance{Process: w.Process(name), Making: i.Folder, UID: i.Note.UID, Told: i.Note.Told.UserData, Definition: i.Config + i.Text}
}

func (w *classic) Make(name, namespace string, run bool) {
	w.t.Helper()
	if namespace == "test" {
		namespace = w.Namespace
	}
	w.Host.Make(name, namespace, run)
}

// lxcFaults are what the agent finds in the kernel's table of sockets, which tells it
// of the guests that run.
var lxcFaults = map[string]string{
	"a table of sockets that is cut off": "Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 0000",
	"a table of sockets without a head":  "0000000000000000: 00000002 00000000 00010000 0001 01 1 /run/x\n",
}

func (w *classic) Faults() []string { return slices.Sorted(maps.Keys(lxcFaults)) }

func (w *classic) Break(fault string) { w.table(lxcFaults[fault]) }

// table covers the agent's table of sockets and has the agent look at all.
func (w *classic) table(text string) {
	w.t.Helper()
	w.CoverSockets(w.a.PID(), text)
	w.Touch("web")
}

func (w *classic) Hang() { w.t.Fatal("classic LXC has no daemon") }

func (w *classic) Heal() { w.table("") }

func (w *classic) Mutations() int {
	all := w.Host.Mutations()
	if len(all) > 0 {
		w.t.Logf("changed: %q", all)
	}
	return len(all)
}
