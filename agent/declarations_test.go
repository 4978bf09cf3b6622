package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hostler/internal/fault"
)

// folderApplier is an applier that remembers which files it has.
type folderApplier struct {
	files   []string
	gone    []string
	refusal error
	held    string
}

func (a *folderApplier) ApplyFile(_ context.Context, path string, _ []byte, gone []string) (string, error) {
	a.gone = gone
	if a.refusal != nil {
		return "", a.refusal
	}
	a.files = append(a.files, path)
	return a.held, nil
}

func (a *folderApplier) RemoveFile(_ context.Context, path string) error {
	a.files = slices.DeleteFunc(a.files, func(f string) bool { return f == path })
	return nil
}

func (a *folderApplier) FileSources(context.Context) ([]string, error) {
	return slices.Clone(a.files), nil
}

func TestFolderOfDeclarations(t *testing.T) {
	h := &host{notices: map[string]string{}, logger: slog.New(slog.DiscardHandler)}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"one.yaml", "two.json", "notes.txt", ".hidden.yaml"} {
		if err := os.WriteFile(at(name), []byte("version: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &folderApplier{files: []string{"/elsewhere/x.yaml"}}
	apply := func() bool {
		t.Helper()
		next, err := h.applyFolder(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		return next > 0
	}
	if apply() || !slices.Equal(a.files, []string{"/elsewhere/x.yaml", at("one.yaml"), at("two.json")}) || len(h.notices) != 0 {
		t.Errorf("files %v, notices %v", a.files, h.notices)
	}

	// A renamed file may take what the old one declared, which goes then.
	if err := os.Rename(at("one.yaml"), at("three.yaml")); err != nil {
		t.Fatal(err)
	}
	apply()
	if !slices.Equal(a.gone, []string{at("one.yaml")}) || slices.Contains(a.files, at("one.yaml")) {
		t.Errorf("gone %v, files %v", a.gone, a.files)
	}

	// What others stand in the way of is tried again, what is wrong is not.
	for kind, again := range map[fault.Kind]bool{fault.NotReady: true, fault.Conflict: true, fault.Transient: true, fault.Invalid: false} {
		if a.refusal = fault.New(kind, "no"); apply() != again || !strings.Contains(h.notices[at("two.json")], "is not applied: no") {
			t.Errorf("%s: tried again %v, notices %v", kind, !again, h.notices)
		}
	}
	a.refusal = nil

	// What is held back may be allowed meanwhile.
	if a.held = "a restart is held back"; !apply() || !strings.Contains(h.notices[at("two.json")], "is applied, but a restart is held back") {
		t.Errorf("notices %v", h.notices)
	}
	if a.held = ""; apply() || len(h.notices) != 0 {
		t.Errorf("notices %v", h.notices)
	}

	// A pipe is not waited for.
	if err := syscall.Mkfifo(at("pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if apply(); !strings.Contains(h.notices[at("pipe.yaml")], "not a file") || len(h.notices) != 1 {
		t.Errorf("notices %v", h.notices)
	}
}
