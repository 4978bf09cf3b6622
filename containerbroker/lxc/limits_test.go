package lxc

import (
	"os"
	"path/filepath"
	"testing"

	"hostler/containerbroker"
)

// The limits of a running instance are those of its cgroup in both layouts. What the
// kernel rounds is no difference, and what cannot be read counts as stored.
func TestObservedLimits(t *testing.T) {
	stored := containerbroker.Properties{CPUs: 2, Memory: 100_000_000}
	for name, c := range map[string]struct {
		unified bool
		files   map[string]string
		want    containerbroker.Properties
	}{
		"v2 without limits": {true, map[string]string{"web/cpu.max": "max 100000", "web/memory.max": "max"}, containerbroker.Properties{}},
		"v2 as stored":      {true, map[string]string{"web/cpu.max": "200000 100000", "web/memory.max": "99999744"}, stored},
		"v2 without cpu":    {true, map[string]string{"web/memory.max": "max"}, stored},
		"v1 without limits": {false, map[string]string{
			"cpu/web/cpu.cfs_quota_us": "-1", "cpu/web/cpu.cfs_period_us": "100000", "memory/web/memory.limit_in_bytes": "9223372036854771712",
		}, containerbroker.Properties{}},
		"v1 with others": {false, map[string]string{
			"cpu/web/cpu.cfs_quota_us": "50000", "cpu/web/cpu.cfs_period_us": "50000", "memory/web/memory.limit_in_bytes": "4096",
		}, containerbroker.Properties{CPUs: 1, Memory: 4096}},
	} {
		d := New(Options{Cgroup: t.TempDir()})
		d.layout = func() bool { return c.unified }
		for file, text := range c.files {
			path := filepath.Join(d.opts.Cgroup, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		now := stored
		d.observeLimits(t.Context(), entry{name: "web", conf: parseConfig(keyGroup + " = web")}, &now)
		if now != c.want {
			t.Errorf("%s: %+v", name, now)
		}
	}
}
