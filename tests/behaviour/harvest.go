package behaviour

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// strangers are instances with another agent's stamp and without a stamp,
// running and stopped.
var strangers = map[string]string{"other": "another", "other-up": "another", "foreign": "", "foreign-up": ""}

// harvested tries the modes on known, unknown, another agent's and unstamped
// instances, each of them running and stopped.
func harvested(t *testing.T, w World) {
	a := begin(w)
	// The agent must have compared the records with the instances once, or
	// these would count as those of a lost store.
	site := declaration(machine(w, "web", w.Image(), ""), machine(w, "db", w.Image(), ", running: false"))
	a.Apply("site", site)
	w.Make("stray", "test", false)
	w.Make("stray-up", "test", true)
	was := map[string]Instance{}
	for name, namespace := range strangers {
		w.Make(name, namespace, strings.HasSuffix(name, "-up"))
		was[name] = w.Look(name)
	}
	untouched := func() {
		t.Helper()
		for name, before := range was {
			if there(t, w, name); w.Look(name) != before {
				t.Errorf("%s is %+v, was %+v", name, w.Look(name), before)
			}
		}
	}
	harness.Wait(t, "the unknown to be told", patience, func() error {
		if out := a.Run("status", "-o", "json"); !strings.Contains(out, `"stray"`) || !strings.Contains(out, `"stray-up"`) || strings.Contains(out, `"foreign`) {
			return fmt.Errorf("status:\n%s", out)
		}
		return nil
	})
	// none: the record goes, the instance stays as it is and is unknown then.
	a.Run("harvest", "none")
	running := w.Look("web")
	a.Run("delete", "machine/web", "--wait")
	there(t, w, "web", "stray", "stray-up", "db")
	same(t, w, "web", running)
	// unknown sweeps at once, though nothing is dead.
	a.Run("harvest", "unknown")
	gone(t, w, "web", "stray", "stray-up")
	there(t, w, "db")
	untouched()
	// The mode unknown leaves the instance of a removed machine until it is an
	// orphan, and then deletes it.
	a.Run("delete", "machine/db")
	gone(t, w, "db")

	a.Run("harvest", "all")
	a.Apply("site", site)
	w.Make("stray", "test", false)
	a.Run("delete", "machine/web", "--wait")
	gone(t, w, "web", "stray")

	a.Run("harvest", "destroyed")
	w.Make("stray", "test", false)
	a.Run("delete", "machine/db", "--wait")
	gone(t, w, "db")
	there(t, w, "stray")
	untouched()
	if left := w.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// misled: a listing that fails or is cut short changes nothing even in the mode
// all, and the status says unknown. Machines that are removed meanwhile lose
// their instances only after a complete listing.
func misled(t *testing.T, w World) {
	a := w.Agent()
	w.Configure("harvest: all\n")
	a.Start()
	a.Apply("site", declaration(plain(w, "web")...))
	was := w.Look("web")
	site := declaration(machine(w, "db", w.Image(), ", running: false"))
	untouched := func(fault string) {
		t.Helper()
		if n := w.Mutations(); n != 0 {
			t.Errorf("%d changes after %s", n, fault)
		}
		same(t, w, "web", was)
		if names := w.Names(); !slices.Equal(slices.Sorted(slices.Values(names)), []string{"stray", "web"}) {
			t.Errorf("after %s there are %v", fault, names)
		}
		if row := a.Machines()["web"]; row.Status != "unknown" {
			t.Errorf("after %s: %+v", fault, row)
		}
	}
	w.Forget()
	for n, fault := range w.Faults() {
		began := w.Listings()
		w.Break(fault)
		if n == 0 {
			w.Make("stray", "test", false)
			status(t, a, "web", "unknown")
			_, _ = a.Exit("apply", "--allow", "destroy", "-f", a.File("site", site))
		}
		// When one more is asked for, the answer to the first was read.
		for more := 1; more <= 2; more++ {
			harness.Wait(t, "a listing that ends in "+fault, patience, func() error {
				if n := w.Listings() - began; n < more {
					return fmt.Errorf("there were %d", n)
				}
				return nil
			})
			if more == 1 {
				w.Break(fault)
			}
		}
		untouched(fault)
	}
	w.Heal()
	gone(t, w, "stray")
	a.Apply("site", site)
	gone(t, w, "web")
}

// impatient: no command waits long for a hypervisor that hangs, and each reports
// it.
func impatient(t *testing.T, w World) {
	a := begin(w)
	a.Apply("site", declaration(machine(w, "web", w.Image(), ", running: false")))
	w.Hang()
	t.Cleanup(w.Heal)
	for command, says := range map[string]string{
		"doctor": "no answer within 3s",
		"status": "cannot list",
	} {
		began := time.Now()
		_, out := a.Exit(command)
		if took := time.Since(began); took > 30*time.Second || !strings.Contains(out, says) {
			t.Errorf("%s after %s: %s", command, took, out)
		}
	}
}
