package agent

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Without hostler.yaml the agent begins with the configuration of its store. A key
// that an earlier version did not know has its default.
func TestConfigurationOfTheStoreIsResumed(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	defer l.close()
	l.drivers, l.paths.Config = nil, filepath.Join(t.TempDir(), "hostler.yaml")
	l.followFiles()
	resumed := func() spec.Config {
		t.Helper()
		config, err := l.configuration.Await(t.Context())
		if err == nil {
			config, err = l.resume(t.Context(), l.store, config)
		}
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	if c := resumed(); c.Harvest != "all" {
		t.Errorf("harvest %s", c.Harvest)
	}
	for record, want := range map[string]spec.Config{
		`{"config": {"namespace": "lab", "harvest": "none"}}`: {Namespace: "lab", Harvest: "none", MaxMachines: 2000},
		`{"config": {"namespace": ""}}`:                       {Namespace: "hostler", Harvest: "destroyed", MaxMachines: 2000},
	} {
		write := state.Write{ID: state.ID{Kind: spec.KindHost, Name: spec.HostName}, Revision: state.AnyRevision, Spec: json.RawMessage(record)}
		if _, err := l.store.Write(t.Context(), state.Atomic, write); err != nil {
			t.Fatal(err)
		}
		if c := resumed(); c.Namespace != want.Namespace || c.Harvest != want.Harvest || c.MaxMachines != want.MaxMachines {
			t.Errorf("%s: %+v", record, c)
		}
	}
}
