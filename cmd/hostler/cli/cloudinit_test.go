package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/packaging"
)

// While cloud-init waits for a command, the agent may install packages. A command
// of a user's session changes nothing.
func TestWaitOfCloudInitLiftsTheHold(t *testing.T) {
	for group, want := range map[string]bool{
		"0::/system.slice/cloud-final.service\n":                               true,
		"0::/system.slice/cloud-init-main.service\n":                           true,
		"12:cpu:/\n1:name=systemd:/system.slice/cloud-final.service/x\n0::/\n": true,
		"0::/user.slice/user-0.slice/session-1.scope\n":                        false,
		"0::/system.slice/cloud-print.service\n":                               false,
	} {
		root := t.TempDir()
		for _, dir := range []string{"run/cloud-init", "proc/self"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte(group), 0o600); err != nil {
			t.Fatal(err)
		}
		lifted := func() bool {
			_, err := os.Stat(filepath.Join(root, "run/cloud-init", packaging.LiftFile))
			return err == nil
		}
		for _, args := range [][]string{{"wait", "machine/web"}, {"wait", "--all"}, {"status", "--wait"}} {
			var during bool
			var out, messages bytes.Buffer
			code := execute(t.Context(), env{
				Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &messages, Root: root,
				Getenv: func(string) string { return "" }, Now: time.Now, Term: &fakeTerminal{},
				Dial: func(string, *slog.Logger) agent {
					return observing{smallHost(), func() { during = during || lifted() }}
				},
			})
			if during != want || lifted() {
				t.Errorf("%v in %q: lifted %t during the wait, %t after it; exit %d: %s", args, group, during, lifted(), code, messages.String())
			}
		}
	}
}

// observing is a stand-in that calls look at each watch of rows.
type observing struct {
	*standIn
	look func()
}

func (o observing) WatchRows(ctx context.Context, kinds, machines []string, fn func(string, json.RawMessage) error) error {
	o.look()
	return o.standIn.WatchRows(ctx, kinds, machines, fn)
}
