package lxc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/internal/fault"
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

// On cgroup v2 the kernel kills processes of a guest that uses more memory than its
// new limit, so such a limit is not set unless the kernel frees the rest.
func TestLowerMemoryThanUsed(t *testing.T) {
	d := New(Options{Path: t.TempDir(), Cgroup: t.TempDir()})
	d.layout = func() bool { return true }
	monitor(t, d, "web", append(frame(0, 4, 0), "web\x00"...))
	dir := filepath.Join(d.opts.Cgroup, "web")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says := func(file, want string) {
		t.Helper()
		if got, err := readProc(filepath.Join(dir, file)); got != want || err != nil {
			t.Errorf("%s is %q, want %q, %v", file, got, want, err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write("memory.max", "max")
	write("memory.reclaim", "")
	write("memory.current", "5000\n")
	set := func(limit int64) error {
		return d.applyLimit(t.Context(), "web", containerbroker.FieldMemory, containerbroker.Properties{Memory: limit})
	}
	if err := set(4096); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "uses more memory") {
		t.Errorf("less than it uses: %v", err)
	}
	says("memory.max", "max")
	says("memory.reclaim", "904")
	write("memory.current", "4096\n")
	if err := set(4096); err != nil {
		t.Error(err)
	}
	says("memory.max", "4096")
	if err := set(0); err != nil {
		t.Error(err)
	}
	says("memory.max", "max")
}
