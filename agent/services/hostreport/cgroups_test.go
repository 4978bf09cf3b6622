package hostreport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/paths"
)

func TestMissingCgroupControllers(t *testing.T) {
	var objects []state.Object
	for name, m := range map[string]spec.Machine{
		"limited": {Type: spec.Incus, Memory: 1 << 30, CPUs: 1},
		"plain":   {Type: spec.Incus},
		"vm":      {Type: spec.KVM, Memory: 1 << 30, CPUs: 1},
	} {
		objects = append(objects, state.Object{ID: state.ID{Kind: spec.KindMachine, Name: name}, Spec: spec.Encode(spec.MachineRecord{Machine: m})})
	}
	for name, c := range map[string]struct {
		controllers string // "" is a host with hierarchies of cgroup v1
		want        []string
	}{
		"cgroup v1":  {"", nil},
		"all":        {"cpuset cpu io memory hugetlb pids rdma misc dmem\n", nil},
		"no memory":  {"cpuset cpu io pids\n", []string{"cgroup memory"}},
		"in another": {"pids\n", []string{"cgroup memory", "cgroup cpu", "cgroup cpuset"}},
	} {
		p := paths.Paths{Root: t.TempDir()}
		if c.controllers != "" {
			path := p.Host(controllersFile)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.controllers), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, check := range cgroupControllers(p, objects) {
			got = append(got, check.Name)
			if check.Result != "warning" || !strings.HasSuffix(check.Message, "be enforced: limited") {
				t.Errorf("%s: %+v", name, check)
			}
		}
		if strings.Join(got, ",") != strings.Join(c.want, ",") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
