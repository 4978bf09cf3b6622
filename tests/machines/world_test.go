//go:build integration

package machines

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/behaviour"
	"hostler/tests/harness"
)

// LXD machines pass the suite that every container type passes.
func TestBehaviour(t *testing.T) {
	behaviour.Run(t, func(t *testing.T) behaviour.World { return open(t, lxdtest.LXD) })
}

// So do Incus machines.
func TestBehaviourOfIncus(t *testing.T) {
	behaviour.Run(t, func(t *testing.T) behaviour.World { return open(t, lxdtest.Incus) }, ofIncus...)
}

// open makes a world of a daemon. The agent finds no other.
func open(t *testing.T, daemon lxdtest.Daemon) *world {
	s := lxdtest.StartWith(t, lxdtest.Options{Daemon: daemon, Driver: "btrfs"})
	p := lxdtest.NewProxy(t, s.Socket)
	dir := t.TempDir()
	if err := os.Symlink(p.Socket, filepath.Join(dir, "unix.socket")); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, s: s, p: p, a: harness.NewAgent(t, t.TempDir())}
	w.a.Env = append(w.a.Env, daemon.Variable+"="+dir)
	w.Configure("")
	return w
}

// world is a private LXD or Incus with an agent behind a proxy.
type world struct {
	t *testing.T
	s *lxdtest.Server
	p *lxdtest.Proxy
	a *harness.Agent
}

// instance is what LXD says of one.
type instance struct {
	Name, Status string
	Config       map[string]string
	Devices      map[string]map[string]string
	State        struct{ Pid int }
}

func (w *world) Type() string          { return w.s.Daemon.Name }
func (w *world) Agent() *harness.Agent { return w.a }
func (w *world) Image() string         { return w.Type() + ":tiny" }
func (w *world) Another() string       { return "busybox/1" }
func (w *world) Later() string         { return w.Type() + ":later" }
func (w *world) Greeting() string      { return "init up" }
func (w *world) PID() int              { return w.s.PID() }
func (w *world) Names() []string       { return w.s.Names() }

func (w *world) Configure(more string) {
	w.a.Configure("namespace: test\nretry-delay: 1s\nstart-retries: 2\n" + more)
}

func (w *world) Supply() {
	w.call("POST", "/1.0/images/aliases", map[string]any{"name": "later", "target": w.s.TinyFingerprint})
}

func (w *world) Live() behaviour.Change {
	return behaviour.Change{From: ", cpus: 1, memory: 64MiB", To: ", cpus: 2, memory: 96MiB", Made: w.has("limits.cpu", "2")}
}

func (w *world) Restart() behaviour.Change {
	return behaviour.Change{From: ", cpus: 2, memory: 96MiB", To: ", cpus: 2, memory: 96MiB, nesting: true", Made: w.has("security.nesting", "true")}
}

// has returns what compares a key of an instance's configuration.
func (w *world) has(key, value string) func(string) error {
	return func(name string) error {
		if now := w.find(name).Config[key]; now != value {
			return fmt.Errorf("%s has %s %q, not %q", name, key, now, value)
		}
		return nil
	}
}

func (w *world) find(name string) instance {
	w.t.Helper()
	var all []instance
	if err := w.s.API("GET", "/1.0/instances?recursion=2", nil, &all); err != nil {
		w.t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == name {
			return i
		}
	}
	w.t.Fatalf("LXD has no instance %q", name)
	return instance{}
}

func (w *world) Look(name string) behaviour.Instance {
	w.t.Helper()
	i := w.find(name)
	config := maps.Clone(i.Config)
	maps.DeleteFunc(config, func(key, _ string) bool { return strings.HasPrefix(key, "volatile.") })
	return behaviour.Instance{
		Process: i.State.Pid, Making: i.Config["volatile.uuid"], UID: i.Config["user.hostler.uid"],
		Told: i.Config["cloud-init.user-data"], Definition: fmt.Sprint(config, i.Devices),
	}
}

func (w *world) Make(name, namespace string, run bool) {
	w.t.Helper()
	config := map[string]string{"limits.cpu": "1", "cloud-init.user-data": "#cloud-config\n{}\n"}
	if namespace != "" {
		maps.Copy(config, map[string]string{"user.hostler.namespace": namespace, "user.hostler.uid": "uid-of-" + name, "user.hostler.token": "x"})
	}
	w.call("POST", "/1.0/instances", map[string]any{"name": name, "config": config, "source": map[string]string{"type": "image", "alias": w.s.TinyAlias}})
	if run {
		w.call("PUT", "/1.0/instances/"+name+"/state", map[string]any{"action": "start", "timeout": 30})
	}
}

func (w *world) call(method, path string, body any) {
	w.t.Helper()
	if err := w.s.API(method, path, body, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Left() (paths []string) {
	names := w.Names()
	for _, pattern := range []string{"containers/*", "custom/*", "virtual-machines/*"} {
		found, _ := filepath.Glob(filepath.Join(w.s.Dir, "storage-pools", w.s.Pool, pattern))
		for _, path := range found {
			if !slices.Contains(names, filepath.Base(path)) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// listing is the path of every listing's request.
const listing = "/1.0/instances"

var faults = map[string]lxdtest.Fault{"a refusal": lxdtest.Refuse, "half an answer": lxdtest.Truncate}

func (w *world) Faults() []string { return slices.Sorted(maps.Keys(faults)) }

func (w *world) Break(fault string) {
	w.p.Heal()
	w.p.Add(lxdtest.Rule{Method: http.MethodGet, Path: listing, Fault: faults[fault], Times: -1})
	w.p.CutStreams()
}

func (w *world) Hang() {
	w.p.Add(lxdtest.Rule{Method: http.MethodGet, Path: "/1.0", Fault: lxdtest.Delay, Times: -1, Wait: 5 * time.Minute})
}

// Heal has the event stream opened again, which causes a full listing.
func (w *world) Heal() {
	w.p.Heal()
	w.p.CutStreams()
}

func (w *world) Forget()        { w.p.Forget() }
func (w *world) Listings() int  { return w.p.Count(http.MethodGet, listing+"?") }
func (w *world) Mutations() int { return w.p.Mutations() }
