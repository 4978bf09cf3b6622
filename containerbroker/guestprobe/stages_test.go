package guestprobe

import (
	"testing"
	"time"
)

// The time of cloud-init is that from its first stage's beginning to its last
// stage's end.
func TestCloudInitTook(t *testing.T) {
	const stages = `{"v1": {"datasource": "DataSourceNoCloud", "init": {"start": 101.5, "finished": 102, "errors": []},
 "init-local": {"start": 100.25, "finished": 101, "errors": []}, "modules-config": {"start": 103, "finished": 104},
 "modules-final": {"start": 110, "finished": %, "errors": []}, "stage": null}}`
	for name, c := range map[string]struct {
		report string
		want   time.Duration
	}{
		"done":       {"init systemd\nstages\n" + with(stages, "112.75") + "\nresult\n{\"v1\": {}}\n", 12500 * time.Millisecond},
		"unfinished": {"stages\n" + with(stages, "null") + "\n", 0},
		"clock back": {"stages\n" + with(stages, "3e5") + "\n", 0},
		"no stages":  {"init systemd\nresult\n{}", 0},
		"no JSON":    {"stages\nnull and void\nresult\n{}", 0},
		"numbers":    {"stages\n{\"v1\": {\"a\": {\"start\": \"1\"}, \"b\": 7}}", 0},
	} {
		if got := Report(c.report).CloudInitTook; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func with(stages, finished string) string {
	for i := range stages {
		if stages[i] == '%' {
			return stages[:i] + finished + stages[i+1:]
		}
	}
	return stages
}
