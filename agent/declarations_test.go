package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/paths"
)

// folderApplier is an applier that remembers which files it has.
type folderApplier struct {
	mu      sync.Mutex
	files   []string
	gone    []string
	refusal error
	held    string
	read    []string // what the files held when they were applied
	during  func(path string)
}

func (a *folderApplier) ApplyFile(_ context.Context, path string, content []byte, gone []string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = gone
	a.read = append(a.read, string(content))
	if a.during != nil {
		a.during(path)
	}
	if a.refusal != nil {
		return "", a.refusal
	}
	if !slices.Contains(a.files, path) {
		a.files = append(a.files, path)
	}
	return a.held, nil
}

func (a *folderApplier) RemoveFile(_ context.Context, path string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files = slices.DeleteFunc(a.files, func(f string) bool { return f == path })
	return nil
}

func (a *folderApplier) FileSources(context.Context) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
		next, _, err := h.applyFolder(t.Context(), dir, a)
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

	// What was told of a file goes with it, though it never declared anything.
	h.tell("/elsewhere", "another matter")
	if err := os.Remove(at("pipe.yaml")); err != nil {
		t.Fatal(err)
	}
	if apply(); len(h.notices) != 1 || h.notices["/elsewhere"] == "" {
		t.Errorf("notices %v", h.notices)
	}
}

// I14: what is told of files that are wrong names the place and repeats no
// password.
func TestNoticesRepeatNoSecrets(t *testing.T) {
	dir := t.TempDir()
	var logged strings.Builder
	h := &host{
		notices: map[string]string{}, logger: slog.New(slog.NewTextHandler(&logged, nil)),
		paths: paths.New("", filepath.Join(dir, "hostler.yaml"), "", ""),
	}
	declaration := filepath.Join(dir, "web.yaml")
	_, wrong := spec.Parse(declaration, []byte("version: 1\nmachines: {}\n  password: hunter2\n"))
	if err := os.WriteFile(declaration, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.paths.Config, []byte("proxy: {http: 'ftp://user:hunter2@p:1'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.applyFolder(t.Context(), dir, &folderApplier{refusal: wrong}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.followConfiguration(ctx) }()
	told := func() string { return strings.Join((glance{h}).texts(), "\n") }
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(told(), "hostler.yaml:1:15: proxy.http"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("told: %s", told())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(told(), "web.yaml:3:") || strings.Contains(told()+logged.String(), "hunter2") || !strings.Contains(logged.String(), "hostler.yaml:1:15") {
		t.Errorf("told: %s\nlogged: %s", told(), logged.String())
	}
}

// I16: a folder that went away as a whole says nothing of what its files
// declared; an empty one does.
func TestLostFolderRemovesNothing(t *testing.T) {
	h := &host{
		notices: map[string]string{}, logger: slog.New(slog.DiscardHandler),
		paths: paths.New("", filepath.Join(t.TempDir(), "hostler.yaml"), "", ""),
	}
	dir := h.paths.ConfD()
	a := &folderApplier{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.followDeclarations(a)(ctx) }()
	eventually := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never came: %s", what)
			}
		}
	}
	exists := func() bool { _, err := os.Stat(dir); return err == nil }
	declared := func() bool { files, _ := a.FileSources(ctx); return len(files) > 0 }
	told := func() bool { return len((glance{h}).texts()) > 0 }
	eventually("a folder where nothing is declared", exists)
	if err := os.WriteFile(filepath.Join(dir, "one.yaml"), []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually("what the file declares", declared)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	eventually("word of it", told)
	if !declared() || exists() {
		t.Errorf("declared %v, there %v", declared(), exists())
	}
	if err := os.Rename(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	eventually("the end of it", func() bool { return !told() })
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually("the removal", func() bool { return !declared() })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A link in conf.d is the file that it leads to, whichever way that one, or
// where the link leads, is changed; so is a configuration that is a link.
func TestChangesBehindLinksAreSeen(t *testing.T) {
	elsewhere := t.TempDir()
	h := &host{
		notices: map[string]string{}, logger: slog.New(slog.DiscardHandler),
		paths: paths.New("", filepath.Join(t.TempDir(), "hostler.yaml"), "", ""),
	}
	dir := h.paths.ConfD()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, content string) { t.Helper(); must(os.WriteFile(path, []byte(content), 0o600)) }
	for _, d := range []string{dir, filepath.Join(elsewhere, "v1"), filepath.Join(elsewhere, "v2")} {
		must(os.Mkdir(d, 0o755))
	}
	one, config := filepath.Join(elsewhere, "one.yaml"), filepath.Join(elsewhere, "config")
	write(one, "1")
	write(config, "harvest: none\n")
	write(filepath.Join(elsewhere, "v1", "f"), "first")
	write(filepath.Join(elsewhere, "v2", "f"), "second")
	must(os.Symlink(one, filepath.Join(dir, "web.yaml")))
	must(os.Symlink("v1", filepath.Join(elsewhere, "now")))
	must(os.Symlink(filepath.Join(elsewhere, "now", "f"), filepath.Join(dir, "db.yaml")))
	must(os.Symlink(config, h.paths.Config))

	a := &folderApplier{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- h.followDeclarations(a)(ctx) }()
	go func() { done <- h.followConfiguration(ctx) }()
	read := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return slices.Contains(a.read, what) })
	}
	read("1")
	read("first")
	write(one, "2")
	read("2")
	write(one+".new", "3")
	must(os.Rename(one+".new", one))
	read("3")
	must(os.Remove(one))
	eventually(t, "word of the lost file", func() bool { return strings.Contains(strings.Join((glance{h}).texts(), ""), "web.yaml is not applied") })
	write(one, "4")
	read("4")
	must(os.Symlink("v2", filepath.Join(elsewhere, "next")))
	must(os.Rename(filepath.Join(elsewhere, "next"), filepath.Join(elsewhere, "now")))
	write(one, "5") // the folder of "now" is watched for it
	read("second")
	write(config, "harvest: none\nconcurrency: many\n")
	eventually(t, "word of the configuration", func() bool { return strings.Contains(strings.Join((glance{h}).texts(), ""), "concurrency: must be") })
	cancel()
	for range 2 {
		must(<-done)
	}
}

// A folder that is not there does not keep the agent from its end.
func TestDeclarationsEndWithoutTheirFolder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := &host{paths: paths.New("", filepath.Join(t.TempDir(), "absent", "hostler.yaml"), "", "")}
	ended := make(chan error, 1)
	go func() { ended <- h.followDeclarations(nil)(ctx) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}
