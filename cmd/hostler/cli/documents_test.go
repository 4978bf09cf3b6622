package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/agent/client"
)

// The documents of a request share a size limit.
func TestDocumentsShareASizeLimit(t *testing.T) {
	var docs []client.Document
	for i := range 64 {
		docs = append(docs, client.Document{Name: fmt.Sprint("d", i), Content: strings.Repeat("#", maxDocument)})
	}
	if err := checkTogether(docs[:63]); err != nil {
		t.Error(err)
	}
	if err := checkTogether(docs); err == nil || !strings.Contains(err.Error(), "64 files make a request of 16MiB, and a request has at most 16MiB") {
		t.Error(err)
	}
}

// A pipe in a folder of declarations is named, and not read: it may have no writer.
func TestPipeAmongDeclarations(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "lan.yaml"), []byte("version: 1\nnetworks: {lan: {bridge: br-lan}}\n"), 0o600), unix.Mkfifo(pipe, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, nil, &fakeTerminal{}, nil, "", "validate", "-f", dir); got.code != exitError || !strings.Contains(got.stderr, pipe+": it is not a file") {
		t.Errorf("%+v", got)
	}
}

// A pipe in place of hostler.yaml is named, and not read, by the commands that read the
// file.
func TestPipeAsConfiguration(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "hostler.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"validate", "--system", "--config", pipe}, {"internal", "boot-wait", "--config", pipe}} {
		if got := run(t, nil, &fakeTerminal{}, nil, "", args...); got.code != exitError || !strings.Contains(got.stderr, "cannot read "+pipe+": it is a pipe") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
