package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/agent/state"
)

// The notice of a quarantined store ends when the operator removes that store.
// However often records are lost, the notices of the losses stay few, the newest
// among them.
func TestNoticesOfLossesEnd(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	defer l.close()
	dir := t.TempDir()
	lose := func(n int) (path string) {
		t.Helper()
		path = filepath.Join(dir, fmt.Sprintf("%d-state.db", n))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		report := state.OpenReport{Rebuilt: true, Quarantined: path, Reason: "it is damaged"}
		if err := l.recovery.Start(t.Context(), report, l.boot, ""); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shown := func(path string) bool {
		return slices.ContainsFunc(l.allNotices(t.Context()), func(text string) bool { return strings.Contains(text, path) })
	}
	first := lose(0)
	if !shown(first) {
		t.Fatalf("the quarantined store is not in %q", l.allNotices(t.Context()))
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if shown(first) {
		t.Errorf("the removed store is in %q", l.allNotices(t.Context()))
	}
	last := ""
	for n := range 30 {
		last = lose(n + 1)
	}
	if all := l.notices(); len(all) > 10 || !shown(last) {
		t.Errorf("%d notices, the last is shown: %v", len(all), shown(last))
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.recovery.Start(t.Context(), state.OpenReport{}, l.boot, ""); err != nil {
		t.Fatal(err)
	}
	if all := l.notices(); len(all) != 0 {
		t.Errorf("kept for removed stores: %q", all)
	}
}
