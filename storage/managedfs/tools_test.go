package managedfs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// Missing tools are installed once, and only if they are missing.
func TestMissingToolsAreInstalled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mkfs.moss")
	command := func() run.Command { return run.Command{Path: program} }
	moss := kind{
		pkg: "mossprogs", make: func(_, _, _ string, _ bool) run.Command { return command() },
		check: func(string) run.Command { return command() }, grow: func(_, _ string) run.Command { return command() },
	}
	kinds["moss"] = moss
	t.Cleanup(func() { delete(kinds, "moss") })
	var said, installed []string
	progress := func(text string) { said = append(said, text) }
	works := true
	s := New(Options{Dir: t.TempDir(), Install: func(_ context.Context, pkg string, progress func(string)) error {
		progress("installing " + pkg)
		installed = append(installed, pkg)
		if !works {
			return fault.New(fault.Transient, "cannot install %s: no mirror answers", pkg)
		}
		return os.WriteFile(program, nil, 0o755)
	}})
	if got := s.Missing("moss"); got != "mossprogs" {
		t.Errorf("missing %q", got)
	}
	works = false
	if err := s.ready(t.Context(), moss, progress); fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), "no mirror answers") {
		t.Errorf("got %v", err)
	}
	works = true
	for range 2 {
		if err := s.ready(t.Context(), moss, progress); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(installed, []string{"mossprogs", "mossprogs"}) || said[0] != "installing mossprogs" || s.Missing("moss") != "" || s.Missing("none") != "" {
		t.Errorf("installed %q, said %q", installed, said)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Dir: t.TempDir()}).ready(t.Context(), moss, nil); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "install the package mossprogs") {
		t.Errorf("without a way to install: %v", err)
	}
}
