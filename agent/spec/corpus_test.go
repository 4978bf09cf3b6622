package spec

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
)

var update = flag.Bool("update", false, "write the messages as they are now into testdata")

// C14 A13 P34: every invalid declaration (e.g. an unknown container type, an
// undeclared network or storage) is refused with exactly the message in the
// file beside it.
func TestBadDeclarations(t *testing.T) {
	corpus(t, "testdata/bad", 70, func(file string, content []byte) (string, error) {
		_, err := Parse(file, content)
		return "", err
	})
}

// Every invalid host configuration is refused with exactly the message in the
// file beside it, warnings first.
func TestBadConfigs(t *testing.T) {
	corpus(t, "testdata/bad-config", 12, func(file string, content []byte) (string, error) {
		_, warnings, err := ParseConfig(file, content)
		var told strings.Builder
		for _, w := range warnings {
			told.WriteString("warning: " + (*Error)(&w).Error() + "\n")
		}
		return told.String(), err
	})
}

func corpus(t *testing.T, dir string, least int, parse func(string, []byte) (string, error)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) < least {
		t.Fatalf("found %d files, want at least %d; %v", len(files), least, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			told, err := parse(filepath.Base(file), content)
			var errs Errors
			if !errors.As(err, &errs) || !fault.Is(err, fault.Invalid) {
				t.Fatalf("accepted, or not an error of the right kind: %v", err)
			}
			for _, e := range errs {
				if e.Line == 0 && !strings.Contains(e.Message, "bytes long") {
					t.Errorf("an error without a place: %v", e)
				}
			}
			compareGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", told+err.Error()+"\n")
		})
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
