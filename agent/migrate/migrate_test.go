package migrate

import (
	"encoding/json"
	"testing"

	"hostler/agent/spec"
)

// A stamp keeps all its fields, also those of a later version.
func TestRetyped(t *testing.T) {
	got, err := retyped(`{"name":"web","later":[1],"machine":{"type":"lxd","cpus":2}}`, spec.Incus)
	if err != nil {
		t.Fatal(err)
	}
	var stamped struct {
		Name    string
		Later   []int
		Machine struct {
			Type string
			CPUs int
		}
	}
	if err := json.Unmarshal([]byte(got), &stamped); err != nil || stamped.Name != "web" || len(stamped.Later) != 1 || stamped.Machine.Type != "incus" || stamped.Machine.CPUs != 2 {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"machine":3}`} {
		if _, err := retyped(bad, spec.Incus); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
