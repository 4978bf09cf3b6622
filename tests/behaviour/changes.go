package behaviour

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// planned: a plan lists every step and exits with 2; the apply carries it out;
// after it nothing is planned, and the plan exits with 0. JSON holds the same.
func planned(t *testing.T, w World) {
	a := begin(w)
	file := a.File("site", declaration(plain(w, "web", "db")...))
	code, out := a.Exit("plan", "-f", file)
	if code != 2 || !strings.Contains(out, "machine/web") || !strings.Contains(out, "machine/db") || !strings.Contains(out, "create") {
		t.Fatalf("plan exited with %d:\n%s", code, out)
	}
	if names := w.Names(); len(names) != 0 {
		t.Fatalf("a plan made %v", names)
	}
	inJSON := func() (plan struct {
		Steps    []struct{ Object string }
		Machines []string
	},
	) {
		_, out := a.Exit("plan", "-f", file, "-o", "json")
		if err := json.Unmarshal([]byte(out), &plan); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return plan
	}
	for _, name := range []string{"web", "db"} {
		if plan := inJSON(); !strings.Contains(fmt.Sprint(plan.Steps), name) || len(plan.Machines) != 2 {
			t.Errorf("JSON: %+v", plan)
		}
	}
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "3m")
	for _, name := range []string{"web", "db"} {
		if row := a.Machines()[name]; row.Status != "running" {
			t.Errorf("%s: %+v", name, row)
		}
		// The tiny images are ready without an address, which comes by itself.
		harness.Wait(t, "an address", patience, func() error {
			if row := a.Machines()[name]; len(row.Addresses) == 0 {
				return fmt.Errorf("%s: %+v", name, row)
			}
			return nil
		})
	}
	empty(t, a, file)
	if code, out := a.Exit("apply", "--allow", "destroy", "-f", file); code != 0 || !strings.Contains(out, "no changes") {
		t.Errorf("the second apply exited with %d:\n%s", code, out)
	}
	if plan := inJSON(); len(plan.Steps) != 0 || len(plan.Machines) != 2 {
		t.Errorf("JSON: %+v", plan)
	}
	a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
	nothing(t, w)
}

// changed: a running guest takes the changes that it can take live. Changes that
// need a restart or a new instance are announced and made only when allowed.
func changed(t *testing.T, w World) {
	a := begin(w)
	live, restart := w.Live(), w.Restart()
	const told = `, cloud-init: {user-data: "#cloud-config\npackages: [nginx]\n"}`
	a.Apply("site", declaration(machine(w, "web", w.Image(), live.From)))
	was := w.Look("web")
	a.Apply("site", declaration(machine(w, "web", w.Image(), live.To)))
	same(t, w, "web", was)
	made(t, live, "web")
	refused(t, a, []string{"apply", "-f", a.File("site", declaration(machine(w, "web", w.Image(), live.To+told)))},
		"takes effect only in a new machine", "--allow recreate")
	same(t, w, "web", was)
	if now := w.Look("web"); now.Told != was.Told {
		t.Errorf("user-data: %q, was %q", now.Told, was.Told)
	}

	file := a.File("site", declaration(machine(w, "web", w.Image(), restart.To)))
	for _, args := range [][]string{{"plan", "-f", file}, {"apply", "--allow", "destroy", "-f", file, "--wait"}} {
		refused(t, a, args, "restart", "--allow restart")
	}
	same(t, w, "web", was)
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--allow", "restart", "--timeout", "3m")
	now := w.Look("web")
	if now.Process == was.Process || now.Process == 0 || now.Making != was.Making {
		t.Errorf("an allowed restart: %+v, was %+v", now, was)
	}
	made(t, restart, "web")

	was = now
	file = a.File("site", declaration(machine(w, "web", w.Another(), restart.To+told)))
	refused(t, a, []string{"apply", "--allow", "destroy", "-f", file}, "recreate", "--allow recreate")
	same(t, w, "web", was)
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--allow", "recreate", "--timeout", "3m")
	if now := w.Look("web"); now.Making == was.Making || !strings.Contains(now.Told, "nginx") {
		t.Errorf("an allowed recreate was not done, or not told its user-data: %+v", now)
	}
	empty(t, a, file)
}

// kept: undeclared machines lose their instances unless they are retained, and a
// stopped machine stays stopped until the user starts it.
func kept(t *testing.T, w World) {
	a := begin(w)
	a.Apply("site", declaration(plain(w, "web", "db")...))
	a.Apply("site", declaration(plain(w, "db")...))
	if names := w.Names(); len(names) != 1 || names[0] != "db" {
		t.Errorf("after web is no longer declared, there are %v", names)
	}
	a.Apply("site", declaration(machine(w, "db", w.Image(), ", running: false")))
	if now := w.Look("db"); now.Process != 0 {
		t.Errorf("declared as stopped, it runs as %d", now.Process)
	}
	a.Run("start", "db")
	a.Run("wait", "machine/db", "--for", "ready", "--timeout", "2m")
	a.Apply("site", declaration(machine(w, "db", w.Image(), ", retain: true")))
	was := w.Look("db")
	a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
	same(t, w, "db", was)
	if now := w.Look("db"); was.UID == "" || now.UID != "" {
		t.Errorf("retained: its stamp was %q and is %q", was.UID, now.UID)
	}
}

// reached: exec passes streams and exit codes, the console is logged, and events
// report each change. Absent objects and timeouts have exit codes of their own.
func reached(t *testing.T, w World) {
	a := begin(w)
	a.Apply("site", declaration(plain(w, "web")...))
	if code, out := a.Exit("exec", "web", "--", "sh", "-c", "echo hello; echo oops >&2; exit 7"); code != 7 || !strings.Contains(out, "hello") || !strings.Contains(out, "oops") {
		t.Errorf("exec exited with %d: %q", code, out)
	}
	if out := a.Run("exec", "web", "--", "hostname"); strings.TrimSpace(out) != "web" {
		t.Errorf("the guest calls itself %q", out)
	}
	if out := a.Run("logs", "web"); !strings.Contains(out, w.Greeting()) {
		t.Errorf("its console said %q", out)
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
