package run_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/internal/run"
)

func script(body string) run.Command {
	return run.Command{Path: "/bin/sh", Args: []string{"-c", body}}
}

func TestRunReturnsBothOutputs(t *testing.T) {
	var lines, status []string
	c := script("echo out; echo err >&2; cat; printf 'no newline'; echo st >&3; exit 0")
	c.Stdin = strings.NewReader("in\n")
	c.OnLine = func(l string) { lines = append(lines, l) }
	c.OnStatus = func(l string) { status = append(status, l) }
	result, err := run.Host{}.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(result.Stdout); got != "out\nin\nno newline" {
		t.Errorf("stdout %q", got)
	}
	if got := string(result.Stderr); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	slices.Sort(lines)
	if !slices.Equal(lines, []string{"err", "in", "no newline", "out"}) {
		t.Errorf("lines %q", lines)
	}
	if !slices.Equal(status, []string{"st"}) {
		t.Errorf("status lines %q", status)
	}
}

func TestFailureRepeatsTheLastLines(t *testing.T) {
	_, err := run.Host{}.Run(t.Context(), script("for i in 1 2 3 4 5 6 7 8; do echo line $i >&2; done; exit 3"))
	var exit *run.ExitError
	if !errors.As(err, &exit) || exit.Code != 3 {
		t.Fatalf("got %v", err)
	}
	want := "cannot run sh: exit status 3: line 3\nline 4\nline 5\nline 6\nline 7\nline 8"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	_, err = run.Host{}.Run(t.Context(), script("kill -9 $$"))
	if !errors.As(err, &exit) || exit.Signal != "killed" {
		t.Errorf("got %v", err)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := (run.Host{}).Run(t.Context(), run.Command{Path: "sh"}); err == nil {
		t.Error("a relative path was accepted")
	}
	if _, err := (run.Host{}).Run(t.Context(), run.Command{Path: "/nonexistent"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentIsClean(t *testing.T) {
	t.Setenv("HOSTLER_SECRET", "x")
	result, err := run.Host{}.Run(t.Context(), run.Command{Path: "/usr/bin/env", Env: []string{"A=b", "LANG=C"}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(result.Stdout))
	if bytes.Contains(result.Stdout, []byte("HOSTLER")) || !slices.Contains(got, "A=b") || !slices.Contains(got, "LANG=C") {
		t.Errorf("environment %q", got)
	}
}

func TestContextEndKillsTheWholeGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	c := script("sleep 60 & echo $! > " + pidFile + "; echo ready; wait")
	c.OnLine = func(string) { cancel() }
	_, err := run.Host{}.Run(ctx, c)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	gone(t, readPID(t, pidFile))
}

func TestTimeoutWithGraceAsksFirst(t *testing.T) {
	c := script("trap 'echo asked; exit 7' TERM; sleep 60 & wait")
	c.Timeout, c.Grace = 50*time.Millisecond, 10*time.Second
	result, err := run.Host{}.Run(t.Context(), c)
	if !errors.Is(err, context.DeadlineExceeded) || string(result.Stdout) != "asked\n" {
		t.Fatalf("got %q, %v", result.Stdout, err)
	}
}

func TestNoKillWaitsForTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := script("trap : INT; echo ready; sleep 0.3; echo finished; echo status >&3")
	c.NoKill = true
	var status []string
	c.OnStatus = func(line string) { status = append(status, line) }
	c.OnLine = func(line string) {
		if line == "ready" {
			cancel()
		}
	}
	result, err := run.Host{}.Run(ctx, c)
	if err != nil || string(result.Stdout) != "ready\nfinished\n" || !slices.Equal(status, []string{"status"}) {
		t.Fatalf("got %q, %q, %v", result.Stdout, status, err)
	}
}

// A NoKill program can write on after the process that started it was killed.
// With a pipe it would end.
func TestNoKillOutlivesAKilledStarter(t *testing.T) {
	if file := os.Getenv("RUN_CHILD"); file != "" {
		c := script("echo $$ > " + file + ".pid; while [ ! -e " + file + ".go ]; do sleep 0.05; done; echo more; echo more >&2; echo $? > " + file)
		c.NoKill = true
		c.OnLine = func(string) {}
		_, _ = run.Host{}.Run(context.Background(), c)
		return
	}
	file := filepath.Join(t.TempDir(), "file")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := run.Host{}.Run(t.Context(), run.Command{
		Path: self, Args: []string{"-test.run=^TestNoKillOutlivesAKilledStarter$"},
		Env: []string{"RUN_CHILD=" + file}, Detach: file + ".log",
	})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, err := os.Stat(file + ".pid"); return err == nil })
	if err := syscall.Kill(child.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, child.PID)
	if err := os.WriteFile(file+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { data, _ := os.ReadFile(file); return string(data) == "0\n" })
}

func TestDaemonLeftBehindDoesNotHoldRun(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	start := time.Now()
	result, err := run.Host{}.Run(t.Context(), script("sleep 60 & echo $! > "+pidFile+"; echo done"))
	if err != nil || string(result.Stdout) != "done\n" {
		t.Fatalf("got %q, %v", result.Stdout, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	pid := readPID(t, pidFile)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the daemon was ended: %v", err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	c := script("i=0; while [ $i -lt 2000 ]; do echo 0123456789; i=$((i+1)); done; echo last")
	c.Limit = 100
	result, err := run.Host{}.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Stdout) != 100 || !bytes.HasSuffix(result.Stdout, []byte("last\n")) {
		t.Errorf("kept %d bytes, ending %q", len(result.Stdout), result.Stdout[len(result.Stdout)-10:])
	}
}

func TestDetachOutlivesTheContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c := script("echo started; exec sleep 60")
	c.Detach = filepath.Join(dir, "log")
	result, err := run.Host{}.Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	waitFor(t, func() bool { log, _ := os.ReadFile(c.Detach); return string(log) == "started\n" })
	if sid, err := getsid(result.PID); err != nil || sid != result.PID {
		t.Errorf("session %d of process %d, %v", sid, result.PID, err)
	}
	if err := syscall.Kill(result.PID, syscall.SIGKILL); err != nil {
		t.Errorf("the daemon was ended: %v", err)
	}
	gone(t, result.PID)
}

func getsid(pid int) (int, error) {
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sid), nil
}

func TestManyRunsLeaveNoFiles(t *testing.T) {
	before := openFiles(t)
	for range 50 {
		if _, err := (run.Host{}).Run(t.Context(), run.Command{Path: "/bin/true", OnStatus: func(string) {}}); err != nil {
			t.Fatal(err)
		}
		_, _ = run.Host{}.Run(t.Context(), run.Command{Path: "/nonexistent"})
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone waits until the process has ended. A zombie that no process waits for
// counts as ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	waitFor(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("the condition was not met in 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
