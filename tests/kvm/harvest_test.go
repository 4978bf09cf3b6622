//go:build integration

package kvm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/harness"
)

// defined are machines that are there and do not run: what harvest does is
// the same for both, and nothing has to boot.
func defined(image string, names ...string) string {
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range names {
		text.WriteString("  " + name + ": {type: kvm, image: \"" + image + "\", running: false}\n")
	}
	return text.String()
}

// behind is start with a proxy before libvirt.
func behind(t *testing.T) (*kvmtest.Server, *kvmtest.Proxy, *harness.Agent, string) {
	t.Helper()
	image := kvmtest.TinyReference(t)
	s := kvmtest.Start(t)
	p := kvmtest.NewProxy(t, s.Socket)
	a := harness.NewAgent(t, t.TempDir())
	a.Prefix = s.Behind(p)
	a.Configure("namespace: test\nretry-delay: 1s\nstart-retries: 2\ntypes: {kvm: {accelerator: tcg}}\n")
	a.Start()
	return s, p, a, image
}

// define makes a domain that no agent here made, stamped with a namespace, or
// unstamped where that is empty; it has no disk and boots nothing.
func define(s *kvmtest.Server, name, namespace string, run bool) {
	stamp := ""
	if namespace != "" {
		stamp = fmt.Sprintf("<metadata><h:instance xmlns:h='https://hostler.invalid/libvirt/1' namespace='%s' uid='uid-of-%s' token='x'/></metadata>", namespace, name)
	}
	s.Define("define", fmt.Sprintf("<domain type='qemu'><name>%s</name>%s<memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>", name, stamp))
	if run {
		s.Virsh("start", name, "--paused")
	}
}

// stay fails the test unless the domains are there as they were.
func stay(t *testing.T, s *kvmtest.Server, states map[string]string) {
	t.Helper()
	names := s.Names()
	for name, state := range states {
		if !slices.Contains(names, name) {
			t.Errorf("%s is gone", name)
		} else if now := s.State(name); now != state {
			t.Errorf("%s is %s, was %s", name, now, state)
		}
	}
}

func goes(t *testing.T, s *kvmtest.Server, names ...string) {
	t.Helper()
	harness.Wait(t, strings.Join(names, ", ")+" to go", time.Minute, func() error {
		for _, name := range s.Names() {
			if slices.Contains(names, name) {
				return fmt.Errorf("%s is there", name)
			}
		}
		return nil
	})
}

// What is harvested, and what never is.
func TestHarvest(t *testing.T) {
	s, p, a, image := behind(t)
	t.Run("P4 P22 P23 P24 Z1 Z3 the modes", func(t *testing.T) { modes(t, s, a.With(t), image) })
	a.Run("harvest", "all")
	goes(t, s, "stray")
	a.Apply("site", defined(image, "web"))
	for _, fault := range []kvmtest.Fault{kvmtest.Lose, kvmtest.Truncate, kvmtest.Garbage, kvmtest.Oversize} {
		t.Run("P20 P21 I15 I16 a listing that ends in "+string(fault), func(t *testing.T) {
			badListing(t, s, p, a.With(t), image, fault)
		})
	}
}

// modes tries the modes on domains that are known, unknown (one of them shut
// off), another agent's and nobody's.
func modes(t *testing.T, s *kvmtest.Server, a *harness.Agent, image string) {
	t.Helper()
	// The agent must have compared the records with the domains once, or these
	// would count as those of a lost store.
	a.Apply("site", defined(image, "web", "db"))
	define(s, "stray", "test", false)
	define(s, "stray-up", "test", true)
	define(s, "other", "another", false)
	define(s, "other-up", "another", true)
	define(s, "foreign", "", false)
	define(s, "foreign-up", "", true)
	others := map[string]string{"other": "shut off", "other-up": "paused", "foreign": "shut off", "foreign-up": "paused"}
	harness.Wait(t, "the unknown to be told", time.Minute, func() error {
		if out := a.Run("status", "-o", "json"); !strings.Contains(out, `"stray"`) || !strings.Contains(out, `"stray-up"`) || strings.Contains(out, `"foreign`) {
			return fmt.Errorf("status:\n%s", out)
		}
		return nil
	})
	// none: the record goes, the domain stays and is unknown then.
	a.Run("harvest", "none")
	a.Run("delete", "machine/web", "--wait")
	stay(t, s, map[string]string{"web": "shut off", "stray": "shut off", "stray-up": "paused", "db": "shut off"})
	// unknown sweeps at once, though nothing is dead.
	a.Run("harvest", "unknown")
	goes(t, s, "web", "stray", "stray-up")
	stay(t, s, map[string]string{"db": "shut off"})
	// unknown leaves what was declared until it is unknown, and then takes it.
	a.Run("delete", "machine/db")
	goes(t, s, "db")

	a.Run("harvest", "all")
	a.Apply("site", defined(image, "web", "db"))
	define(s, "stray", "test", false)
	a.Run("delete", "machine/web", "--wait")
	goes(t, s, "web", "stray")

	a.Run("harvest", "destroyed")
	define(s, "stray", "test", false)
	a.Run("delete", "machine/db", "--wait")
	goes(t, s, "db")
	others["stray"] = "shut off"
	stay(t, s, others)
	if files := s.Files(); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
}

// badListing: a listing that fails or is cut short changes nothing, though all
// is to be harvested, and the status says unknown.
func badListing(t *testing.T, s *kvmtest.Server, p *kvmtest.Proxy, a *harness.Agent, image string, fault kvmtest.Fault) {
	t.Helper()
	p.Break(kvmtest.ProcAllStats, fault)
	p.Cut()
	define(s, "stray", "test", false)
	harness.Wait(t, "unknown", time.Minute, func() error {
		if row := a.Machines()["web"]; row.Status != "unknown" {
			return fmt.Errorf("web is %s", row.Status)
		}
		return nil
	})
	// What is undeclared meanwhile goes only when all is seen again.
	p.Calls()
	a.Run("apply", "-f", a.File("site", defined(image, "db")))
	harness.Wait(t, "two listings", time.Minute, func() error {
		if n := p.Count(kvmtest.ProcAllStats); n < 2 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	if n := p.Mutations(); n != 0 {
		t.Errorf("%d changes", n)
	}
	if names := s.Names(); !slices.Contains(names, "web") || !slices.Contains(names, "stray") || slices.Contains(names, "db") {
		t.Errorf("domains %v", names)
	}
	p.Heal()
	goes(t, s, "web", "stray")
	a.Apply("site", defined(image, "web"))
}
