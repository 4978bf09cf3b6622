package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"hostler/agent/client"
	"hostler/agent/client/frames"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fakeTerminal stands for pipes on all three streams, or for a terminal with on
// set.
type fakeTerminal struct {
	on     bool
	width  int
	height int
	raw    int
}

func (t *fakeTerminal) Input() bool      { return t.on }
func (t *fakeTerminal) Output() bool     { return t.on }
func (t *fakeTerminal) Messages() bool   { return t.on }
func (t *fakeTerminal) Size() (int, int) { return t.width, t.height }

func (t *fakeTerminal) Raw() (func(), error) {
	t.raw++
	return func() { t.raw-- }, nil
}

func (t *fakeTerminal) Resized(context.Context) <-chan frames.WindowSize { return nil }

// outcome is the result of a command line.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs a command line against a world.
func run(t *testing.T, served agent, term *fakeTerminal, environ map[string]string, stdin string, args ...string) outcome {
	t.Helper()
	var out, messages bytes.Buffer
	code := execute(t.Context(), env{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &messages,
		Getenv: func(k string) string { return environ[k] },
		Now:    func() time.Time { return noon },
		Term:   term,
		Dial: func(socket string, _ *slog.Logger) agent {
			if served == nil {
				return client.New(socket)
			}
			return served
		},
	})
	return outcome{code, out.String(), messages.String()}
}

// Every golden file holds a command line, the name of a world, files, standard
// input and the expected output.
func TestGolden(t *testing.T) {
	t.Setenv("TZ", "UTC")
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	wrong := 0
	for _, f := range files {
		if filepath.Base(filepath.Dir(f)) == "badargs" {
			wrong++
		}
		t.Run(strings.TrimSuffix(strings.TrimPrefix(f, "testdata/"), ".txtar"), func(t *testing.T) { golden(t, f) })
	}
	if wrong < 30 {
		t.Errorf("only %d wrong command lines are tested", wrong)
	}
}

func golden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	place, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var want outcome
	stdin := ""
	keep := []txtar.File{}
	for _, f := range archive.Files {
		switch f.Name {
		case "stdout":
			want.stdout = string(f.Data)
			continue
		case "stderr":
			want.stderr = string(f.Data)
			continue
		case "stdin":
			stdin = string(f.Data)
		default:
			if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f.Name, f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		keep = append(keep, f)
	}
	s := parseScene(t, string(archive.Comment))
	want.code = s.exit
	got := run(t, s.agent, s.term, s.env, stdin, s.args...)
	got.stdout, got.stderr = visible(got.stdout, dir), visible(got.stderr, dir)
	if *update {
		var b strings.Builder
		for l := range strings.Lines(string(archive.Comment)) {
			if !strings.HasPrefix(l, "exit ") && strings.TrimSpace(l) != "" {
				b.WriteString(l)
			}
		}
		fmt.Fprintf(&b, "exit %d\n", got.code)
		for _, f := range []txtar.File{{Name: "stdout", Data: []byte(got.stdout)}, {Name: "stderr", Data: []byte(got.stderr)}} {
			if len(f.Data) > 0 {
				keep = append(keep, f)
			}
		}
		if err := os.WriteFile(place, txtar.Format(&txtar.Archive{Comment: []byte(b.String()), Files: keep}), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("unexpected result (-want +got):\n%s", diff)
	}
}

// visible replaces escape characters, so that golden files hold plain text.
func visible(s, dir string) string {
	return strings.NewReplacer("\x1b", "␛", "\r", "␍", dir, "$DIR").Replace(s)
}

// scene is the head of a golden file.
type scene struct {
	args  []string
	agent agent
	term  *fakeTerminal
	env   map[string]string
	exit  int
}

func parseScene(t *testing.T, text string) scene {
	t.Helper()
	s := scene{term: &fakeTerminal{}, env: map[string]string{"TERM": "xterm"}}
	for l := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimRight(l, "\n"), " ")
		switch word {
		case "", "#":
		case "hostler":
			s.args = words(rest)
		case "world":
			w, ok := standIns[rest]
			if !ok {
				t.Fatalf("unknown world %q", rest)
			}
			s.agent = w()
		case "terminal":
			s.term.on = true
			if _, err := fmt.Sscan(rest, &s.term.width, &s.term.height); err != nil {
				t.Fatal(err)
			}
		case "env":
			k, v, _ := strings.Cut(rest, "=")
			s.env[k] = v
		case "exit":
			if _, err := fmt.Sscan(rest, &s.exit); err != nil {
				t.Fatal(err)
			}
		case "sparse":
			// Makes a file that is too large for a golden file.
			var name string
			var size int
			if _, err := fmt.Sscan(rest, &name, &size); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, bytes.Repeat([]byte("#\n"), size/2), 0o644); err != nil {
				t.Fatal(err)
			}
		case "link":
			link, target, _ := strings.Cut(rest, " ")
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
		case "mkdir":
			if err := os.MkdirAll(rest, 0o755); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return s
}

// words splits a command line; double quotes keep spaces, "" is empty.
func words(s string) []string {
	var out []string
	for i, part := range strings.Split(s, `"`) {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

var _ io.Reader = (*leaver)(nil)
