package run_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hostler/internal/run"
)

// A program in a user namespace is root there and an unprivileged user here.
func TestUserNamespace(t *testing.T) {
	var seen string
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = run.Host{}.Run(t.Context(), run.Command{
		Path: "/bin/cat", Stdin: r,
		Users: &run.UserNamespace{FirstUser: 100000, Users: 65536, FirstGroup: 200000, Groups: 65536},
		OnStart: func(pid int) {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/uid_map")
			if err != nil {
				t.Error(err)
			}
			seen = strings.Join(strings.Fields(string(text)), " ")
			_ = w.Close()
		},
	})
	if err != nil || seen != "0 100000 65536" {
		t.Errorf("%q, %v", seen, err)
	}
}

// A program that is to be the namespace's root owns what it makes as the first
// user of this host, and has no group of the caller.
func TestUserNamespaceRoot(t *testing.T) {
	result, err := run.Host{}.Run(t.Context(), run.Command{
		Path: "/bin/sh", Args: []string{"-c", "id -u; id -G; while read -r a b; do case $a in CapEff:) echo $b;; esac; done </proc/self/status"},
		Users: &run.UserNamespace{FirstUser: 100000, Users: 65536, FirstGroup: 200000, Groups: 65536, Root: true},
	})
	out := strings.Fields(string(result.Stdout))
	if err != nil || len(out) != 3 || out[0] != "0" || out[1] != "0" || strings.Trim(out[2], "0") == "" {
		t.Errorf("%q, %v", out, err)
	}
}

// A program with files as its streams ends with its exit code, or with 128 and
// the number of a signal. At the end of the context its children end too.
func TestAttach(t *testing.T) {
	dir := t.TempDir()
	attach := func(ctx context.Context, script string) (string, int, error) {
		out, err := os.CreateTemp(dir, "out")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		code, err := run.Host{}.Attach(ctx, run.Attached{Path: "/bin/sh", Args: []string{"-c", script}, Stdout: out, Dir: dir})
		text, _ := os.ReadFile(out.Name())
		return string(text), code, err
	}
	for script, want := range map[string]int{"echo $PWD; exit 7": 7, "kill -9 $$": 137, "true": 0} {
		text, code, err := attach(t.Context(), script)
		if err != nil || code != want || text != "" && text != dir+"\n" {
			t.Errorf("%s: %q, %d, %v", script, text, code, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	fifo := dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		f, err := os.Open(fifo) // waits until the child has it open
		if err == nil {
			defer f.Close()
			cancel()
			_, _ = io.ReadAll(f) // until the child ends
		}
		cancel()
	}()
	if _, _, err := attach(ctx, "sh -c 'setsid sleep 100 >fifo' & wait"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		_ = f.Close()
	}
}
