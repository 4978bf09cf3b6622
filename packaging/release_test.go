package packaging_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/packaging"
)

func TestSetsByFamily(t *testing.T) {
	for name, c := range map[string]struct {
		release string
		refused string
		notice  string
	}{
		"Debian 12":      {release: "ID=debian\nVERSION_ID=\"12\"\n"},
		"Debian 13":      {release: "ID=debian\nVERSION_ID=\"13\"\n"},
		"Debian testing": {release: "PRETTY_NAME=\"Debian GNU/Linux forky/sid\"\nID=debian\n"},
		"Debian 11":      {release: "ID=debian\nVERSION_ID=11\n", refused: "older than debian 12"},
		"Ubuntu 24.04":   {release: "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n"},
		"Ubuntu 26.04":   {release: "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"26.04\"\n"},
		"Ubuntu 20.04":   {release: "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"20.04\"\n", refused: "older than ubuntu 22.04"},
		"a derivative":   {release: "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"22.1\"\n", notice: "linuxmint 22.1, which derives from ubuntu"},
		"another":        {release: "ID=fedora\nVERSION_ID=44\n", refused: "packages there are unknown", notice: "knows no packages of fedora 44"},
		"nothing":        {release: "", refused: "an unknown distribution", notice: "an unknown distribution"},
	} {
		path := filepath.Join(t.TempDir(), "os-release")
		if err := os.WriteFile(path, []byte(c.release), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := packaging.ReadRelease(path)
		if err != nil {
			t.Fatal(err)
		}
		names, err := packaging.InAll("dnsmasq-base").On(r, "networks")
		switch {
		case c.refused == "" && (err != nil || !slices.Contains(names, "dnsmasq-base")):
			t.Errorf("%s: %v, %v", name, names, err)
		case c.refused != "" && (!fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: got %v, want %q", name, err, c.refused)
		}
		if got := r.Notice(); c.notice == "" && got != "" || !strings.Contains(got, c.notice) {
			t.Errorf("%s: notice %q, want %q", name, got, c.notice)
		}
	}
}

func TestOffer(t *testing.T) {
	for _, c := range []struct{ id, version, want string }{
		{"debian", "12", "bookworm-backports main >/etc/apt/sources.list.d/backports.list`"},
		{"debian", "13", "add one"},
		{"ubuntu", "24.04", "add one"},
	} {
		if got := (packaging.Release{ID: c.id, Version: c.version}).Offer(); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q", c.id, c.version, got)
		}
	}
}
