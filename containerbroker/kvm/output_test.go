package kvm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/internal/run"
)

// All output of a command arrives, with its exit code, in each shell that a
// guest may have; short output leaves no files behind.
func TestKeeper(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 100_000) // 1.6 MB
	for _, sh := range [][]string{{"/bin/sh"}, {"/bin/bash", "--posix"}, {"/bin/busybox", "sh"}} {
		if _, err := os.Stat(sh[0]); err != nil {
			continue
		}
		for name, c := range map[string]struct {
			command  []string
			env      []string
			out, err string
			contains bool // err is only a part of it
			code     int
		}{
			"both outputs":         {command: []string{"sh", "-c", "echo hello; printf oops >&2; exit 7"}, out: "hello\n", err: "oops", code: 7},
			"no output":            {command: []string{"true"}},
			"no such program":      {command: []string{"nosuch"}, err: "not found", contains: true, code: 127},
			"no word of the shell": {command: []string{"exit", "3"}, err: "not found", contains: true, code: 127},
			"not executable":       {command: []string{"/etc/passwd"}, err: "ermission denied", contains: true, code: 126},
			"killed":               {command: []string{"sh", "-c", "kill -9 $$"}, code: 137},
			"odd words":            {command: []string{"printf", "%s|", "a b", "", "$x", "*", `"'`}, out: `a b||$x|*|"'|`},
			"its input":            {command: []string{"cat"}, out: "the input"},
			"its own PATH":         {command: []string{"/bin/sh", "-c", `echo "$PATH"`}, env: []string{"PATH=/nowhere"}, out: "/nowhere\n"},
			"only its own files":   {command: []string{"sh", "-c", "umask; for f in 3 4 5 6 7; do [ ! -e /proc/$$/fd/$f ] || echo $f; done"}, out: "0022\n"},
			"long":                 {command: []string{"sh", "-c", "cat $LONG"}, out: long},
			"long errors":          {command: []string{"sh", "-c", "cat; cat $LONG >&2; echo x; exit 1"}, out: "the inputx\n", err: long, code: 1},
			"both long":            {command: []string{"sh", "-c", "cat $LONG $LONG; cat $LONG >&2"}, out: long + long, err: long},
		} {
			t.Run(filepath.Base(sh[len(sh)-1])+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "long")
				if err := os.WriteFile(file, []byte(long), 0o600); err != nil {
					t.Fatal(err)
				}
				out, errs, code := keep(t, sh, filepath.Join(dir, "kept"), append(c.env, "LONG="+file), c.command...)
				wrong := errs != c.err
				if c.contains {
					wrong = !strings.Contains(errs, c.err)
				}
				if wrong || code != c.code || out != c.out {
					t.Errorf("%d, %.60q, %.60q (%d, %d bytes)", code, out, errs, len(out), len(errs))
				}
			})
		}
	}
}

// keep runs a command under the keeper, as a guest does, and joins its outputs
// as the driver does.
func keep(t *testing.T, sh []string, dir string, env []string, command ...string) (out, errs string, code int) {
	t.Helper()
	r, err := run.Host{}.Run(t.Context(), run.Command{
		Path: sh[0], Args: slices.Concat(sh[1:], []string{"-c", keeper, "hostler", dir}, command),
		Env: env, Stdin: strings.NewReader("the input"), Limit: 4 << 20,
	})
	if r.ExitCode < 0 {
		t.Fatal(err)
	}
	if len(r.Stdout) > pieceSize || len(r.Stderr) > pieceSize+200 {
		t.Errorf("%d and %d bytes in one answer", len(r.Stdout), len(r.Stderr))
	}
	rest, more := splitReport(r.Stderr, dir)
	whole := map[string]*bytes.Buffer{"out": bytes.NewBuffer(r.Stdout), "err": bytes.NewBuffer(rest)}
	for _, name := range more {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		whole[name].Write(data)
	}
	if _, err := os.Stat(dir); (err == nil) != (len(more) > 0) {
		t.Errorf("left behind: %v, told: %q", err == nil, more)
	}
	return whole["out"].String(), whole["err"].String(), r.ExitCode
}

// A guest without room for long output still returns short output, and reports
// that long output is lost.
func TestKeeperWithoutRoom(t *testing.T) {
	for size, lost := range map[int]bool{pieceSize: false, pieceSize + 1: true} {
		r, _ := run.Host{}.Run(t.Context(), run.Command{
			Path: "/bin/sh", Args: []string{"-c", keeper, "hostler", "/nowhere/kept", "head", "-c", fmt.Sprint(size), "/dev/zero"}, Limit: 4 << 20,
		})
		rest, more := splitReport(r.Stderr, "/nowhere/kept")
		if len(r.Stdout) != pieceSize || len(rest) > 0 || slices.Contains(more, "lost") != lost || len(more) > 1 {
			t.Errorf("%d bytes: %d, %q, %q", size, len(r.Stdout), rest, more)
		}
	}
}
