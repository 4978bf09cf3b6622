package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
)

// The notice names only changed keys that take effect after a restart of the
// agent.
func TestChangesThatNeedARestartAreTold(t *testing.T) {
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

// The whole image configuration reaches the image cache.
func TestImageConfigurationIsUsed(t *testing.T) {
	config, _, err := spec.ParseConfig("hostler.yaml", []byte(
		"images: {sources: [local, 'simplestreams:x'], servers: {x: 'https://x.example/'}, refresh: 24h}\napt: {mirror: 'http://m.example/debian', proxy: 'http://p.example:3142'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := (&host{logger: slog.New(slog.DiscardHandler)}).imageOptions(config)
	if o.Refresh != 24*time.Hour || len(o.Sources) != 2 || o.Servers["x"] == "" || o.Mirrors.Debian != "http://m.example/debian" || o.Mirrors.Proxy != "http://p.example:3142" {
		t.Errorf("%+v", o)
	}
	if o.Scan != nil {
		t.Error("a program that is no hostlerd would start itself to read images")
	}
	if (&host{logger: slog.New(slog.DiscardHandler), program: "/usr/bin/hostlerd"}).imageOptions(config).Scan == nil {
		t.Error("hostlerd reads images as root, in its own process")
	}
}
