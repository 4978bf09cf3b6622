//go:build integration

// Package machines tries the agent from outside: the real daemon, the real
// command and a real LXD.
package machines

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

const tiny = `version: 1
machines:
  web: {type: lxd, image: "lxd:tiny", cpus: 1, memory: 64MiB}
  db:  {type: lxd, image: "lxd:tiny"}
`

// instance is what LXD itself says of an instance.
type instance struct {
	Status  string
	Config  map[string]string
	Devices map[string]map[string]string
	State   struct{ Pid int }
}

func look(t *testing.T, s *lxdtest.Server, name string) (instance, bool) {
	t.Helper()
	var all []struct {
		Name string
		instance
	}
	if err := s.API("GET", "/1.0/instances?recursion=2", nil, &all); err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == name {
			return i.instance, true
		}
	}
	return instance{}, false
}

func must(t *testing.T, s *lxdtest.Server, name string) instance {
	t.Helper()
	i, ok := look(t, s, name)
	if !ok {
		t.Fatalf("LXD has no instance %q", name)
	}
	return i
}

func start(t *testing.T) (*lxdtest.Server, *harness.Agent) {
	t.Helper()
	s := lxdtest.Start(t)
	a := harness.NewAgent(t, s.Dir)
	a.Start()
	return s, a
}

// behind returns an LXD_DIR whose socket is the proxy's.
func behind(t *testing.T, p *lxdtest.Proxy) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(p.Socket, filepath.Join(dir, "unix.socket")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A plan lists every step and exits with 2; the apply carries it out; after it
// nothing is planned, and the plan exits with 0. JSON holds the same.
func TestPlanApplyPlan(t *testing.T) {
	s, a := start(t)
	file := a.File("site", tiny)
	code, out := a.Exit("plan", "-f", file)
	if code != 2 || !strings.Contains(out, "machine/web") || !strings.Contains(out, "machine/db") || !strings.Contains(out, "create") {
		t.Fatalf("plan exited with %d:\n%s", code, out)
	}
	if len(s.Names()) != 0 {
		t.Fatal("a plan made something")
	}
	a.Run("apply", "-f", file, "--wait")
	for _, name := range []string{"web", "db"} {
		if row := a.Machines()[name]; row.Status != "running" {
			t.Errorf("%s: %+v", name, row)
		}
		// The tiny image is ready without an address, which comes by itself.
		harness.Wait(t, "an address", 30*time.Second, func() error {
			if row := a.Machines()[name]; len(row.Addresses) == 0 {
				return fmt.Errorf("%s: %+v", name, row)
			}
			return nil
		})
	}
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("the second plan exited with %d:\n%s", code, out)
	}
	if code, out := a.Exit("apply", "-f", file); code != 0 || !strings.Contains(out, "no changes") {
		t.Errorf("the second apply exited with %d:\n%s", code, out)
	}
	var plan struct {
		Steps    []any    `json:"steps"`
		Machines []string `json:"machines"`
	}
	if err := json.Unmarshal([]byte(a.Run("plan", "-f", file, "-o", "json")), &plan); err != nil || len(plan.Steps) != 0 || len(plan.Machines) != 2 {
		t.Errorf("JSON: %+v %v", plan, err)
	}
}

// Limits change as the instance runs; what needs a restart or a recreate is
// announced, and done only when allowed; an undeclared machine goes.
func TestChanges(t *testing.T) {
	s, a := start(t)
	a.Apply("site", tiny)
	before := must(t, s, "web")
	a.Apply("site", strings.Replace(tiny, "cpus: 1, memory: 64MiB", "cpus: 2, memory: 96MiB", 1))
	after := must(t, s, "web")
	if after.State.Pid != before.State.Pid || after.Config["limits.cpu"] != "2" {
		t.Errorf("live: pid %d → %d, cpus %s", before.State.Pid, after.State.Pid, after.Config["limits.cpu"])
	}
	told := strings.Replace(tiny, "cpus: 1, memory: 64MiB", `cpus: 2, memory: 96MiB, cloud-init: {user-data: "#cloud-config\npackages: [nginx]\n"}`, 1)
	a.Apply("site", told)
	if i := must(t, s, "web"); i.State.Pid != before.State.Pid || !strings.Contains(i.Config["cloud-init.user-data"], "nginx") {
		t.Errorf("user-data: pid %d → %d, %q", before.State.Pid, i.State.Pid, i.Config["cloud-init.user-data"])
	}

	nesting := strings.Replace(told, "cpus: 2", "nesting: true, cpus: 2", 1)
	file := a.File("site", nesting)
	for _, args := range [][]string{{"plan", "-f", file}, {"apply", "-f", file, "--wait"}} {
		if code, out := a.Exit(args...); code == 0 || !strings.Contains(out, "restart") || !strings.Contains(out, "--allow restart") {
			t.Errorf("%v exited with %d:\n%s", args, code, out)
		}
	}
	if i := must(t, s, "web"); i.State.Pid != before.State.Pid {
		t.Fatal("restarted unasked")
	}
	a.Run("apply", "-f", file, "--wait", "--allow", "restart")
	i := must(t, s, "web")
	if i.State.Pid == before.State.Pid || i.State.Pid == 0 || i.Config["security.nesting"] != "true" {
		t.Errorf("allowed restart: pid %d → %d, nesting %s", before.State.Pid, i.State.Pid, i.Config["security.nesting"])
	}

	uid := i.Config["volatile.uuid"]
	file = a.File("site", strings.Replace(nesting, `image: "lxd:tiny", nesting`, `image: "busybox/1", nesting`, 1))
	if code, out := a.Exit("apply", "-f", file); code == 0 || !strings.Contains(out, "recreate") || !strings.Contains(out, "--allow recreate") {
		t.Errorf("recreate unasked: exit %d:\n%s", code, out)
	}
	if must(t, s, "web").Config["volatile.uuid"] != uid {
		t.Fatal("recreated unasked")
	}
	a.Run("apply", "-f", file, "--wait", "--allow", "recreate")
	if must(t, s, "web").Config["volatile.uuid"] == uid {
		t.Error("an allowed recreate was not done")
	}
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("after it, plan exits with %d:\n%s", code, out)
	}

	a.Apply("site", "version: 1\nmachines:\n  db: {type: lxd, image: \"lxd:tiny\"}\n")
	if _, there := look(t, s, "web"); there {
		t.Error("an undeclared machine is still there")
	}
	a.Apply("site", "version: 1\nmachines:\n  db: {type: lxd, image: \"lxd:tiny\", running: false}\n")
	if i := must(t, s, "db"); i.Status != "Stopped" {
		t.Errorf("declared as stopped, it is %s", i.Status)
	}
	a.Run("start", "db")
	a.Run("wait", "machine/db", "--for", "ready")
	a.Apply("site", "version: 1\nmachines:\n  db: {type: lxd, image: \"lxd:tiny\", retain: true}\n")
	pid := must(t, s, "db").State.Pid
	a.Run("delete", "declaration/site", "--wait")
	if i := must(t, s, "db"); i.State.Pid != pid || i.Config["user.hostler.uid"] != "" {
		t.Errorf("retained: pid %d → %d, stamp %q", pid, i.State.Pid, i.Config["user.hostler.uid"])
	}
}

// The harvest modes on running instances, known, unknown and foreign.
func TestHarvest(t *testing.T) {
	s, a := start(t)
	create := func(name, namespace string) {
		config := map[string]string{}
		if namespace != "" {
			config = map[string]string{"user.hostler.namespace": namespace, "user.hostler.uid": "uid-of-" + name, "user.hostler.token": "x"}
		}
		body := map[string]any{"name": name, "config": config, "source": map[string]string{"type": "image", "alias": s.TinyAlias}}
		if err := s.API("POST", "/1.0/instances", body, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.API("PUT", "/1.0/instances/"+name+"/state", map[string]any{"action": "start", "timeout": 30}, nil); err != nil {
			t.Fatal(err)
		}
	}
	// The agent must have compared the records with the instances once, or
	// these would count as those of a lost store.
	a.Apply("site", tiny)
	for name, namespace := range map[string]string{"stray": "test", "other": "another", "foreign": ""} {
		create(name, namespace)
	}
	there := func(names ...string) error {
		for _, name := range names {
			if _, ok := look(t, s, name); !ok {
				return fmt.Errorf("%s is gone", name)
			}
		}
		return nil
	}
	gone := func(name string) error {
		if _, ok := look(t, s, name); ok {
			return fmt.Errorf("%s is still there", name)
		}
		return nil
	}
	if out := a.Run("status", "-o", "json"); !strings.Contains(out, `"stray"`) {
		t.Errorf("the unknown instance is not told:\n%s", out)
	}
	// none: the record goes, the instance runs on and is unknown then.
	a.Run("harvest", "none")
	a.Run("delete", "machine/web", "--wait")
	if err := there("web", "stray", "other", "foreign", "db"); err != nil {
		t.Error(err)
	}
	// unknown sweeps at once, though nothing is dead.
	a.Run("harvest", "unknown")
	for _, name := range []string{"web", "stray"} {
		harness.Wait(t, "the sweep", time.Minute, func() error { return gone(name) })
	}
	if err := there("other", "foreign", "db"); err != nil {
		t.Error(err)
	}
	// unknown leaves what was declared until it is unknown, and then takes it.
	a.Run("delete", "machine/db")
	harness.Wait(t, "db", time.Minute, func() error { return gone("db") })

	a.Run("harvest", "all")
	a.Apply("site", tiny)
	create("stray", "test")
	a.Run("delete", "machine/web", "--wait")
	for _, name := range []string{"web", "stray"} {
		harness.Wait(t, name, time.Minute, func() error { return gone(name) })
	}
	a.Run("harvest", "destroyed")
	create("stray", "test")
	a.Run("delete", "machine/db", "--wait")
	if err := there("stray", "other", "foreign"); err != nil {
		t.Error(err)
	}
	if err := gone("db"); err != nil {
		t.Error(err)
	}
}

// A listing that fails or is cut short changes nothing, whatever the mode,
// and the status says unknown.
func TestBadListingsChangeNothing(t *testing.T) {
	s := lxdtest.Start(t)
	p := lxdtest.NewProxy(t, s.Socket)
	a := harness.NewAgent(t, behind(t, p))
	a.Configure("namespace: test\nharvest: all\n")
	a.Start()
	a.Apply("site", tiny)
	for name, rule := range map[string]lxdtest.Rule{
		"refused": {Method: "GET", Path: "/1.0/instances", Fault: lxdtest.Refuse, Times: -1},
		"cut":     {Method: "GET", Path: "/1.0/instances", Fault: lxdtest.Truncate, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			p.Forget()
			p.Add(rule)
			p.CutStreams()
			harness.Wait(t, "unknown", time.Minute, func() error {
				if row := a.Machines()["web"]; row.Status != "unknown" {
					return fmt.Errorf("web is %s", row.Status)
				}
				return nil
			})
			if n := p.Mutations(); n != 0 {
				t.Errorf("%d changes: %v", n, p.Counts())
			}
			p.Heal()
			a.Run("wait", "machine/web", "--for", "ready", "--timeout", "1m")
		})
	}
}

// A hypervisor that hangs is what a person looks for: neither command waits
// for it for long, and both say so.
func TestLooksWhileLXDHangs(t *testing.T) {
	s := lxdtest.Start(t)
	p := lxdtest.NewProxy(t, s.Socket)
	a := harness.NewAgent(t, behind(t, p))
	a.Configure("namespace: test\n")
	a.Start()
	a.Apply("site", tiny)
	p.Add(lxdtest.Rule{Method: "GET", Path: "/1.0", Fault: lxdtest.Delay, Times: -1, Wait: 5 * time.Minute})
	t.Cleanup(p.Heal)
	for command, says := range map[string]string{
		"doctor": "no answer within 3s",
		"status": "cannot list LXD instances",
	} {
		began := time.Now()
		_, out := a.Exit(command)
		if took := time.Since(began); took > 30*time.Second || !strings.Contains(out, says) {
			t.Errorf("%s after %s: %s", command, took, out)
		}
	}
}

// Files of conf.d are declarations; a changed configuration is taken over.
func TestFilesAreFollowed(t *testing.T) {
	s, a := start(t)
	path := filepath.Join(a.Dir, "conf.d", "site.yaml")
	if err := os.WriteFile(path, []byte(tiny), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "web", time.Minute, func() error {
		if a.Machines()["web"].Status != "running" {
			return fmt.Errorf("web is not running: %v", a.Machines())
		}
		return nil
	})
	if code, out := a.Exit("apply", "-f", a.File("other", tiny)); code != 1 || !strings.Contains(out, "site") || !strings.Contains(out, "other") {
		t.Errorf("a conflict of two declarations exits with %d:\n%s", code, out)
	}
	a.Configure("namespace: test\nharvest: all\nconcurrency: 2\n")
	harness.Wait(t, "the new configuration", time.Minute, func() error {
		if out := a.Run("harvest"); !strings.Contains(out, "all") {
			return fmt.Errorf("harvest is %s", out)
		}
		return nil
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "removal", time.Minute, func() error {
		if names := s.Names(); len(names) != 0 {
			return fmt.Errorf("still there: %v", names)
		}
		return nil
	})
}

// A running instance that nobody declared is taken over and let go without
// ever being restarted.
func TestAdoptAndRelease(t *testing.T) {
	s, a := start(t)
	body := map[string]any{
		"name": "legacy", "config": map[string]string{"limits.cpu": "1", "cloud-init.user-data": "#cloud-config\n{}\n"},
		"source": map[string]string{"type": "image", "alias": s.TinyAlias},
	}
	if err := s.API("POST", "/1.0/instances", body, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.API("PUT", "/1.0/instances/legacy/state", map[string]any{"action": "start", "timeout": 30}, nil); err != nil {
		t.Fatal(err)
	}
	before := must(t, s, "legacy")
	file := a.File("site", "version: 1\nmachines:\n  legacy: {type: lxd, image: \"lxd:tiny\"}\n")
	if code, out := a.Exit("apply", "-f", file, "--wait", "--timeout", "20s"); code == 0 || !strings.Contains(out, "adopt") {
		t.Errorf("a foreign instance in the way: exit %d:\n%s", code, out)
	}
	if i := must(t, s, "legacy"); i.State.Pid != before.State.Pid || i.Config["user.hostler.uid"] != "" {
		t.Fatal("a foreign instance was touched")
	}
	a.Run("delete", "declaration/site", "--wait")
	a.Run("adopt", "lxd/legacy")
	a.Run("wait", "machine/legacy", "--for", "ready", "--timeout", "1m")
	after := must(t, s, "legacy")
	if after.State.Pid != before.State.Pid || after.Config["user.hostler.uid"] == "" || after.Config["cloud-init.user-data"] != before.Config["cloud-init.user-data"] {
		t.Errorf("adopted: pid %d → %d, config %v", before.State.Pid, after.State.Pid, after.Config)
	}
	if out := a.Run("export"); !strings.Contains(out, "legacy:") {
		t.Errorf("export:\n%s", out)
	}
	// What is exported and applied again changes nothing.
	if code, out := a.Exit("plan", "-f", a.File("again", a.Run("export", "legacy"))); code != 0 {
		t.Errorf("the plan of what was exported exits with %d:\n%s", code, out)
	}
	a.Run("release", "legacy")
	harness.Wait(t, "release", time.Minute, func() error {
		if i := must(t, s, "legacy"); i.Config["user.hostler.uid"] != "" {
			return fmt.Errorf("still stamped")
		}
		return nil
	})
	if i := must(t, s, "legacy"); i.State.Pid != before.State.Pid {
		t.Error("released: the instance was restarted")
	}
}

// A machine whose image cannot be had is told so; others go on; the retry
// after the mend works at once.
func TestErrorsAndRetry(t *testing.T) {
	s, a := start(t)
	file := a.File("site", tiny+"  bad: {type: lxd, image: \"lxd:later\"}\n")
	code, out := a.Exit("apply", "-f", file, "--wait", "--timeout", "1m")
	if code == 0 || !strings.Contains(out, "later") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	rows := a.Machines()
	if rows["web"].Status != "running" || rows["bad"].Status != "error" || rows["bad"].Attempts == 0 {
		t.Errorf("%+v", rows)
	}
	a.Stop()
	a.Start()
	if row := a.Machines()["bad"]; row.Status != "error" {
		t.Errorf("after a restart of the agent: %+v", row)
	}
	alias := map[string]any{"name": "later", "target": s.TinyFingerprint}
	if err := s.API("POST", "/1.0/images/aliases", alias, nil); err != nil {
		t.Fatal(err)
	}
	a.Run("retry", "machine/bad")
	a.Run("wait", "machine/bad", "--for", "ready", "--timeout", "1m")
}

// exec passes streams and exit codes; events and the log tell what happened.
func TestReachingIn(t *testing.T) {
	_, a := start(t)
	a.Apply("site", tiny)
	if code, out := a.Exit("exec", "web", "--", "sh", "-c", "echo hello; echo oops >&2; exit 7"); code != 7 || !strings.Contains(out, "hello") || !strings.Contains(out, "oops") {
		t.Errorf("exec exited with %d: %q", code, out)
	}
	if out := a.Run("events", "machine/web"); !strings.Contains(out, "Created") || !strings.Contains(out, "Ready") {
		t.Errorf("events:\n%s", out)
	}
	if code, _ := a.Exit("get", "machine", "nothing"); code != 3 {
		t.Errorf("an absent machine exits with %d", code)
	}
	if code, _ := a.Exit("wait", "machine/web", "--for", "gone", "--timeout", "1s"); code != 124 {
		t.Errorf("a wait in vain exits with %d", code)
	}
}

// F11: what a power cut brought back of a container that LXD has deleted is
// told and kept, and a new machine of that name has nothing of it.
func TestForgottenContainer(t *testing.T) {
	s, a := start(t)
	a.Run("apply", "-f", a.File("site", tiny), "--wait", "--timeout", "1m")
	files := filepath.Join(s.Dir, "storage-pools", s.Pool, "containers")
	harness.Run(t, "btrfs", "-q", "subvolume", "snapshot", filepath.Join(files, "web"), filepath.Join(files, "again"))
	harness.Run(t, "touch", filepath.Join(files, "again", "rootfs", "old"))
	a.Stop()
	a.Start()
	a.Run("apply", "-f", a.File("more", "version: 1\nmachines:\n  again: {type: lxd, image: \"lxd:tiny\"}\n"), "--wait", "--timeout", "1m")
	if _, err := os.Stat(filepath.Join(files, "again", "rootfs", "old")); err == nil {
		t.Error("the new machine has the files of the former one")
	}
	kept, err := filepath.Glob(filepath.Join(s.Dir, "storage-pools", s.Pool, "hostler-aside", "again.*", "rootfs", "old"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	place := filepath.Dir(filepath.Dir(kept[0]))
	for _, command := range []string{"status", "events"} {
		if out := a.Run(command); !strings.Contains(out, place) {
			t.Errorf("%s does not name %s:\n%s", command, place, out)
		}
	}
}
