package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// hostler exits with the command's exit code and passes input and output
// through. The command gets a terminal only if both ends have one or with -t.
func TestExec(t *testing.T) {
	for _, c := range []struct {
		name     string
		args     []string
		terminal bool
		want     bool
	}{
		{"pipes", []string{"exec", "web", "--", "cat", "-n"}, false, false},
		{"terminal", []string{"exec", "web", "--", "cat", "-n"}, true, true},
		{"terminal refused", []string{"exec", "-T", "web", "--", "cat", "-n"}, true, false},
		{"terminal forced", []string{"exec", "web", "-t", "--", "cat", "-n"}, false, true},
		{"flags before", []string{"-q", "exec", "--env", "A=b=c", "web", "--", "cat", "-n"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := smallHost()
			w.exit, w.output = 42, "out"
			term := &fakeTerminal{on: c.terminal, width: 80, height: 24}
			got := run(t, w, term, map[string]string{"TERM": "xterm"}, "in", c.args...)
			if got.code != 42 || got.stdout != "out" || got.stderr != "" || string(w.input) != "in" {
				t.Errorf("got %+v, input %q", got, w.input)
			}
			if w.exec.Terminal != c.want || strings.Join(w.exec.Command, " ") != "cat -n" {
				t.Errorf("asked for %+v", w.exec)
			}
			if c.want && (w.exec.Env["TERM"] != "xterm" || c.terminal && w.exec.Width != 80) {
				t.Errorf("the terminal is told as %+v", w.exec)
			}
			if c.name == "flags before" && w.exec.Env["A"] != "b=c" {
				t.Errorf("environment %v", w.exec.Env)
			}
			if term.raw != 0 {
				t.Error("the terminal is left in raw mode")
			}
		})
	}
}

// If a command cannot be run, exec returns an error and restores the terminal.
func TestExecFails(t *testing.T) {
	w := smallHost()
	w.err = fault.New(fault.Transient, "lost the connection to the machine")
	term := &fakeTerminal{on: true}
	got := run(t, w, term, nil, "", "exec", "web", "--", "true")
	if got.code != exitError || !strings.Contains(got.stderr, "lost the connection") || term.raw != 0 {
		t.Errorf("got %+v, raw %d", got, term.raw)
	}
}

// Ctrl+] leaves the console; the keys typed before it reach the machine.
func TestConsole(t *testing.T) {
	w := smallHost()
	term := &fakeTerminal{on: true}
	got := run(t, w, term, nil, "ls\r\x1dnever", "console", "web")
	if got.code != exitOK || string(w.input) != "ls\r" || term.raw != 0 {
		t.Errorf("got %+v, typed %q, raw %d", got, w.input, term.raw)
	}
	w = smallHost()
	w.err = fault.New(fault.Transient, "lost the connection to the machine")
	if got := run(t, w, term, nil, "ls", "console", "web"); got.code != exitError {
		t.Errorf("a lost console gives %+v", got)
	}
}

// An interrupted wait says that the agent goes on, and exits with 130.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := stuckHost()
	var out, messages bytes.Buffer
	env := env{
		Args: []string{"wait", "machine/db"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &messages,
		Getenv: func(string) string { return "" }, Now: time.Now, Term: &fakeTerminal{},
		Dial: func(string, *slog.Logger) agent { return interrupting{w, cancel} },
	}
	if code := execute(ctx, env); code != exitInterrupted || !strings.Contains(messages.String(), "the agent continues") {
		t.Errorf("exit %d: %s", code, messages.String())
	}
}

// interrupting is a stand-in whose watch simulates Ctrl+C.
type interrupting struct {
	*standIn
	interrupt func()
}

func (i interrupting) WatchRows(ctx context.Context, kinds, machines []string, fn func(string, json.RawMessage) error) error {
	i.interrupt()
	return i.standIn.WatchRows(ctx, kinds, machines, fn)
}

// restart --wait waits until the restart is done, even if the machine looks
// settled.
func TestRestartIsWaitedFor(t *testing.T) {
	w := smallHost()
	w.freeze = true
	w.objects["machine/web"] = client.Object{
		Kind: "machine", Name: "web",
		Spec: spec.Encode(spec.MachineRecord{RestartRequest: 2}), Status: spec.Encode(spec.MachineStatus{RestartsDone: 1}),
	}
	got := run(t, w, &fakeTerminal{}, nil, "", "restart", "web", "--wait", "--timeout", "50ms")
	if got.code != exitError || !strings.Contains(got.stderr, "web: about to be restarted") {
		t.Errorf("got %+v", got)
	}
	w.objects["machine/web"] = client.Object{
		Kind: "machine", Name: "web",
		Spec: spec.Encode(spec.MachineRecord{RestartRequest: 2}), Status: spec.Encode(spec.MachineStatus{RestartsDone: 2}),
	}
	if got := run(t, w, &fakeTerminal{}, nil, "", "restart", "web", "--wait"); got.code != exitOK {
		t.Errorf("got %+v", got)
	}
}

// The error names the refused machines too if the wait for the others fails.
func TestPowerReportsAllFailures(t *testing.T) {
	w := smallHost()
	w.freeze = true
	w.objects["machine/web"] = client.Object{
		Kind: "machine", Name: "web",
		Spec: spec.Encode(spec.MachineRecord{RestartRequest: 2}), Status: spec.Encode(spec.MachineStatus{RestartsDone: 1}),
	}
	got := run(t, w, &fakeTerminal{}, nil, "", "restart", "wev", "web", "--wait", "--timeout", "50ms")
	if got.code != exitError || !strings.Contains(got.stderr, "web: about to be restarted") || !strings.Contains(got.stderr, "wev") {
		t.Errorf("got %+v", got)
	}
}
