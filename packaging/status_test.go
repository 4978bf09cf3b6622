package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
)

const statusText = `Package: good
Status: install ok installed
Provides: virtual (= 1), other
Conffiles:
 /etc/x 0123

Package: gone
Status: deinstall ok config-files

Package: half
Status: install reinstreq half-installed

Package: waiting
Status: install ok triggers-awaited

Package: flagged
Status: install reinstreq installed`

func TestParseStatus(t *testing.T) {
	state, err := parseStatus(strings.NewReader(statusText))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"good": true, "virtual": true, "other": true, "gone": false, "half": false, "waiting": false, "": false} {
		if state.installed[name] != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	if want := []string{"half", "waiting", "flagged"}; !slices.Equal(state.broken, want) {
		t.Errorf("broken %q, want %q", state.broken, want)
	}
	if want := []string{"half", "flagged"}; !slices.Equal(state.halfUnpacked, want) {
		t.Errorf("half unpacked %q, want %q", state.halfUnpacked, want)
	}
}

func TestJournalMeansInterrupted(t *testing.T) {
	dir := t.TempDir()
	status, updates := filepath.Join(dir, "status"), filepath.Join(dir, "updates")
	if state, err := readState(status, updates); err != nil || len(state.broken) != 0 {
		t.Errorf("without dpkg: %v, %v", state, err)
	}
	if err := os.Mkdir(updates, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{status, filepath.Join(updates, "0001")} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if state, err := readState(status, updates); err != nil || len(state.broken) != 1 {
		t.Errorf("got %v, %v", state, err)
	}
}

// The set of each container type and release (C8).
func TestSets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "os-release")
	if err := os.WriteFile(file, []byte("PRETTY_NAME=\"Debian\"\nID=debian\nVERSION_ID=\"12\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	release, err := ReadRelease(file)
	if err != nil || release.ID != "debian" || release.Version != "12" {
		t.Fatalf("%v, %v", release, err)
	}
	sets := InAll("nftables", "dnsmasq-base")
	names, err := sets.On(release, "networks")
	if err != nil || !slices.Contains(names, "nftables") {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := sets.On(Release{}, "networks"); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("got %v", err)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(statusText)
	f.Add("Package\nStatus: a b c\n\n:\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseStatus(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzStatusLine(f *testing.F) {
	f.Add("pmstatus:libc6:i386:20.5:Unpacking libc6")
	f.Add("dlstatus:1:1e400:x")
	f.Fuzz(func(t *testing.T, line string) {
		newWatcher("x", func(string) {}).status(line)
	})
}
