package conffiles

import (
	"strings"
	"testing"

	"hostler/agent/spec"
)

// The notice names only changed keys that take effect after a restart of the
// agent.
func TestChangesThatNeedARestartAreReported(t *testing.T) {
	for yaml, want := range map[string]string{
		"":                                      "",
		"harvest: all":                          "",
		"concurrency: 7":                        "",
		"authorized-keys: []":                   "",
		"types: {lxd: {pool: fast}}":            "types",
		"images: {refresh: 24h}":                "images",
		"images: {sources: [local]}":            "images",
		"apt: {mirror: 'http://m/d'}":           "apt",
		"proxy: {http: 'http://p:1'}":           "proxy",
		"proxy: {no: x}\nimages: {refresh: 1h}": "images, proxy",
	} {
		config, _, err := spec.ParseConfig("hostler.yaml", []byte(yaml+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := needRestart("hostler.yaml", spec.DefaultConfig(), config)
		if want == "" && got != "" || want != "" && !strings.Contains(got, "under "+want+" take effect") {
			t.Errorf("%s: %q", yaml, got)
		}
	}
}
