//go:build integration

package machines

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// profile is what LXD says of one.
type profile struct {
	Name    string
	Config  map[string]string
	Devices map[string]map[string]string
}

// readLXD returns what a path of LXD's API answers.
func readLXD[T any](t *testing.T, s *lxdtest.Server, path string) (found T) {
	t.Helper()
	if err := s.API("GET", path, nil, &found); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return found
}

// The default profile has no NIC on purpose, and a foreign instance runs. The
// first apply gives our machine its network, and the foreign instance, the
// profile and the server stay as they were.
func TestFirstApplyLeavesForeignInstancesAsTheyAre(t *testing.T) {
	s := lxdtest.Start(t)
	withoutNIC := map[string]any{"devices": map[string]any{"root": map[string]string{"type": "disk", "path": "/", "pool": s.Pool}}}
	if err := s.API("PUT", "/1.0/profiles/default", withoutNIC, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.API("PATCH", "/1.0", map[string]any{"config": map[string]string{"core.proxy_http": "http://theirs.example:3128"}}, nil); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, s: s}
	w.Make("foreign", "", true)
	type server struct{ Config map[string]any }
	type state struct{ Network map[string]any }
	links := func() []string {
		return slices.Sorted(maps.Keys(readLXD[state](t, s, "/1.0/instances/foreign/state").Network))
	}
	before := struct{ foreign, profile, server, links string }{
		fmt.Sprint(w.find("foreign")), fmt.Sprint(readLXD[profile](t, s, "/1.0/profiles/default")), fmt.Sprint(readLXD[server](t, s, "/1.0")), fmt.Sprint(links()),
	}
	if !strings.Contains(before.links, "[lo]") || w.find("foreign").Config["volatile.cloud-init.instance-id"] == "" {
		t.Fatalf("the foreign instance is not fit for this test: %+v", before)
	}

	w.a = harness.NewAgent(t, s.Dir)
	w.a.Configure("namespace: test\nproxy: {http: \"http://ours.example:3128\"}\n")
	w.a.Start()
	site := w.a.File("site", "version: 1\nmachines: {web: {type: lxd, image: \"lxd:tiny\"}}\n")
	_, plan := w.a.Exit("plan", "-f", site)
	if i := strings.Index(plan, "type/lxd"); i < 0 || !strings.Contains(plan[i:], "profile hostler") || !strings.Contains(plan[i:], "bridge lxdbr") {
		t.Errorf("the plan does not say what is made in LXD:\n%s", plan)
	}
	w.a.Run("apply", "-f", site, "--wait", "--timeout", "2m")

	after := before
	after.foreign, after.profile = fmt.Sprint(w.find("foreign")), fmt.Sprint(readLXD[profile](t, s, "/1.0/profiles/default"))
	after.server, after.links = fmt.Sprint(readLXD[server](t, s, "/1.0")), fmt.Sprint(links())
	if after != before {
		t.Errorf("before the apply: %+v\nafter: %+v", before, after)
	}
	harness.Wait(t, "our machine's address", time.Minute, func() error {
		if row := w.a.Machines()["web"]; row.Status != "running" || len(row.Addresses) != 1 {
			return fmt.Errorf("it is %+v", row)
		}
		return nil
	})
	if code, out := w.a.Exit("plan", "-f", site); code != 0 || strings.Contains(out, "type/lxd") {
		t.Errorf("afterwards a plan has more to do (%d):\n%s", code, out)
	}
}

// Where the default profile has a NIC and a root disk, e.g. because an earlier
// version put them there, machines have these, and nothing is added.
func TestDevicesOfTheDefaultProfileAreUsed(t *testing.T) {
	s, a := start(t)
	w := &world{t: t, s: s, a: a}
	site := a.File("site", "version: 1\nmachines: {web: {type: lxd, image: \"lxd:tiny\"}}\n")
	a.Run("apply", "-f", site, "--wait", "--timeout", "2m")
	before := w.find("web").State.Pid
	if all := readLXD[[]string](t, s, "/1.0/profiles"); len(all) != 1 {
		t.Errorf("profiles: %v", all)
	}
	// The machine keeps them when there is a profile of ours later.
	if err := s.API("POST", "/1.0/profiles", map[string]any{"name": "hostler", "config": map[string]string{"user.hostler.profile": "true"}}, nil); err != nil {
		t.Fatal(err)
	}
	a.Stop()
	a.Start()
	a.Run("wait", "machine/web", "--timeout", "1m")
	if code, out := a.Exit("plan", "-f", site); code != 0 || w.find("web").State.Pid != before {
		t.Errorf("the machine is changed (%d), its init was %d and is %d:\n%s", code, before, w.find("web").State.Pid, out)
	}
}
