//go:build integration

package networks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

const lan = `version: 1
networks:
  lan: {bridge: br-hlan, addresses: [10.221.7.1/24], forwarding: true, nat: true, dhcp: true}
machines:
  web:
    type: lxd
    image: "lxd:tiny"
    networks: {eth0: {network: lan, address: 10.221.7.10/24}}
    publish: [{protocol: tcp, host-port: 18080, port: 80}]
  db:
    type: lxd
    image: "lxd:tiny"
    networks: {eth0: {network: lan}}
`

// both returns an agent beside an LXD, with a namespace of its own, so that the table and
// the bridges are no other's.
func both(t testing.TB) (*lxdtest.Server, *harness.Agent) {
	t.Helper()
	restore := harness.KeepParameters(t)
	t.Cleanup(restore)
	harness.RaiseLimits(t)
	s := lxdtest.Start(t)
	a := harness.NewAgent(t, s.Dir)
	a.Configure("namespace: nets\nretry-delay: 1s\nstart-retries: 2\n")
	a.Start()
	clean(t, a)
	return s, a
}

// clean has the networks go when the test ends: they are not the LXD's.
func clean(t testing.TB, a *harness.Agent) {
	t.Helper()
	t.Cleanup(func() {
		if a.Exited() {
			return // started anew, it was cleaned before its end
		}
		_, _ = a.Try("delete", "declaration/site", "--wait", "--timeout", "1m")
		harness.Wait(t, "the networks to go", time.Minute, func() error { return left(a) })
	})
}

type network struct {
	Name, Bridge, Status, Message string
	Guests                        map[string][]string
	Conditions                    []struct {
		Type, Message string
		Status        bool
	}
}

func networks(t *testing.T, a *harness.Agent) map[string]network {
	t.Helper()
	var rows []network
	if err := json.Unmarshal([]byte(a.Run("get", "networks", "-o", "json")), &rows); err != nil {
		t.Fatal(err)
	}
	all := map[string]network{}
	for _, r := range rows {
		all[r.Name] = r
	}
	return all
}

func gone(t *testing.T, a *harness.Agent) {
	t.Helper()
	a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
	harness.Wait(t, "the networks to go", time.Minute, func() error { return left(a) })
}

// left says which networks are left.
func left(a *harness.Agent) error {
	if out, err := a.Try("get", "networks", "-o", "name"); err != nil || strings.TrimSpace(out) != "" {
		return fmt.Errorf("%q, %v", out, err)
	}
	return nil
}

// inside gets a page from inside a machine.
func inside(a *harness.Agent, machine, host string, port int) error {
	out, err := a.Try("exec", machine, "--", "sh", "-c", fmt.Sprintf(`printf 'GET /passwd HTTP/1.0\r\n\r\n' | nc -w 5 %s %d`, host, port))
	if err == nil && !strings.Contains(out, "root:") {
		err = fmt.Errorf("it says %q", out)
	}
	return err
}

// answer asks a web server that busybox runs.
func answer(url string) error {
	client := http.Client{Timeout: 2 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	return r.Body.Close() // whatever it says, it is there
}

// N12: a guest whose bridge is deleted, or that is taken off it, is reachable
// again without a restart, also by its published ports.
func TestDriftCutsNoGuestOff(t *testing.T) {
	s, a := both(t)
	a.Run("apply", "--allow", "destroy", "-f", a.File("site", lan), "--wait", "--timeout", "2m")
	a.Run("exec", "web", "--", "httpd", "-p", "80", "-h", "/etc")
	port := func() string {
		var web api.Instance
		if err := s.API(http.MethodGet, "/1.0/instances/web", nil, &web); err != nil {
			t.Fatal(err)
		}
		return web.Config["volatile.eth0.host_name"]
	}
	first := port()
	whole := func() error {
		for _, url := range []string{"http://127.0.0.1:18080/passwd", "http://10.221.7.10/passwd"} {
			if err := answer(url); err != nil {
				return err
			}
		}
		return inside(a, "db", "10.221.7.10", 80)
	}
	harness.Wait(t, "the guest's answer", repaired, whole)
	for name, drift := range map[string][]string{
		"the bridge is deleted":            {"link", "delete", "br-hlan"},
		"the guest is taken off":           {"link", "set", first, "nomaster"},
		"the guest is put under another's": {"link", "set", first, "master", s.Bridge},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(eventsOf(t, a))
			began := time.Now()
			harness.Run(t, "ip", drift...)
			harness.Wait(t, "the guests to be reached", repaired, whole)
			t.Logf("put right after %v", time.Since(began).Round(time.Millisecond))
			harness.Wait(t, "the event", repaired, func() error {
				if events := eventsOf(t, a)[before:]; !strings.Contains(strings.Join(events, "\n"), "put "+first+" of a guest back under br-hlan") {
					return fmt.Errorf("told %q", events)
				}
				return nil
			})
		})
	}
	if now := port(); now != first {
		t.Errorf("the guest was started again: %s became %s", first, now)
	}
}

// Two machines with a declared and an allocated address reach the outside and
// each other, the published port answers, the second plan is empty, and
// nothing is left in the end.
func TestNetwork(t *testing.T) {
	_, a := both(t)
	file := a.File("site", lan)
	code, out := a.Exit("plan", "-f", file)
	if code != 2 || !strings.Contains(out, "network/lan") || !strings.Contains(out, "br-hlan") {
		t.Fatalf("plan exited with %d:\n%s", code, out)
	}
	t.Log(a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "2m"))
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("the second plan exited with %d:\n%s\n%s", code, out, a.Log())
	}
	n := networks(t, a)["lan"]
	if n.Status != "ready" || n.Guests["web/eth0"][0] != "10.221.7.10/24" || len(n.Guests["db/eth0"]) != 1 {
		t.Errorf("%+v", n)
	}
	for name, address := range n.Guests {
		machine, _, _ := strings.Cut(name, "/")
		harness.Wait(t, "the address of "+machine, 30*time.Second, func() error {
			if row := a.Machines()[machine]; len(row.Addresses) == 0 || row.Addresses[0]+"/24" != address[0] {
				return fmt.Errorf("%+v, not %s", row, address[0])
			}
			return nil
		})
	}
	a.Run("exec", "web", "--", "httpd", "-p", "80", "-h", "/etc")
	for _, url := range []string{"http://127.0.0.1:18080/passwd", "http://10.221.7.1:18080/passwd", "http://10.221.7.10/passwd"} {
		if err := answer(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := inside(a, "db", "10.221.7.10", 80); err != nil {
		t.Error(err)
	}
	if err := inside(a, "db", "10.221.7.1", 18080); err != nil {
		t.Errorf("by the host: %v", err)
	}
	gone(t, a)
	for _, command := range [][]string{{"ip", "link", "show", "br-hlan"}, {"nft", "list", "table", "inet", "hostler_nets"}} {
		if out, err := harness.Try(nil, command[0], command[1:]...); err == nil {
			t.Errorf("%v:\n%s", command, out)
		}
	}
}
