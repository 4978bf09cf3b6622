package hostreport

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/paths"
)

// Doctor warns of the machines that fail under AppArmor's restriction, and
// mentions the restriction before such a machine is declared.
func TestRestrictedUserNamespaces(t *testing.T) {
	machines := func(all map[string]spec.Machine) state.Store {
		store, _, err := state.Open(t.Context(), state.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		for name, m := range all {
			m.Image = "debian/12"
			if _, err := store.Write(t.Context(), state.Atomic, state.Write{
				ID: state.ID{Kind: spec.KindMachine, Name: name}, UID: "uid-" + name, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{Machine: m}),
			}); err != nil {
				t.Fatal(err)
			}
		}
		return store
	}
	plain := spec.Machine{Type: spec.LXD}
	nested := spec.Machine{Type: spec.Incus, Nesting: true}
	for name, c := range map[string]struct {
		parameter string // "" is a kernel without it
		machines  map[string]spec.Machine
		result    string // "" is no check
	}{
		"another kernel":   {"", map[string]spec.Machine{"outer": nested}, ""},
		"not restricted":   {"0\n", map[string]spec.Machine{"outer": nested}, ""},
		"nested":           {"1\n", map[string]spec.Machine{"outer": nested, "web": plain}, "warning"},
		"none nested":      {"1\n", map[string]spec.Machine{"web": plain}, "ok"},
		"privileged":       {"1\n", map[string]spec.Machine{"root": {Type: spec.LXD, Nesting: true, Privileged: true}}, "ok"},
		"virtual machines": {"1\n", map[string]spec.Machine{"vm": {Type: spec.KVM, Nesting: true}}, "ok"},
	} {
		root := t.TempDir()
		if c.parameter != "" {
			path := filepath.Join(root, userNamespacesParameter)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.parameter), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := Reporter{
			Store: machines(c.machines), Paths: paths.Paths{Root: root, StateDir: root},
			Config:  func() spec.Config { return spec.Config{} },
			Host:    func(context.Context) (spec.HostRecord, error) { return spec.HostRecord{}, nil },
			Notices: func(context.Context) []string { return nil },
		}
		checks, err := r.Doctor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		result := ""
		for _, check := range checks {
			if check.Name != "user namespaces" {
				continue
			}
			result = check.Result
			if result == "warning" && (check.Message != "AppArmor restricts user namespaces, which the containers within these machines need: outer" || check.Mend == "") {
				t.Errorf("%s: %+v", name, check)
			}
		}
		if result != c.result {
			t.Errorf("%s: %q, want %q: %+v", name, result, c.result, checks)
		}
	}
}
