package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/client"
	"hostler/internal/fault"
)

// cleanHost is a host whose systemd runs the agent, unless without says that it
// has neither.
type cleanHost struct {
	agent   *standIn
	without bool
	left    string // the objects that hostlerd finds after its stop
	broken  error  // of hostlerd
	ran     []string
}

func (h *cleanHost) clean(t *testing.T, args ...string) outcome {
	t.Helper()
	root := t.TempDir()
	if !h.without {
		if err := os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out, messages bytes.Buffer
	code := execute(t.Context(), env{
		Args: append([]string{"clean"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &messages, Root: root,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return noon }, Term: &fakeTerminal{},
		Run: func(_ context.Context, path string, args ...string) (string, error) {
			h.ran = append(h.ran, strings.Join(append([]string{filepath.Base(path)}, args...), " "))
			switch args[0] {
			case "show":
				return "active\n", nil
			case "internal":
				return h.left, h.broken
			}
			return "", nil
		},
		Dial: func(string, *slog.Logger) agent { return h.agent },
	})
	return outcome{code, out.String(), messages.String()}
}

const (
	showsUnit  = "systemctl show --property=ActiveState --value hostlerd.service"
	stopsAgent = "systemctl stop hostlerd.service hostler-provisioner@*.service"
	cleansHost = "hostlerd internal clean"
	startAgent = "systemctl start hostlerd.service"
)

// The agent is stopped only if it has no objects. It is started again only after
// a refusal.
func TestClean(t *testing.T) {
	empty := func() *standIn { return &standIn{} }
	notRunning := func() *standIn {
		return &standIn{err: fault.New(fault.NotReady, "no agent answers at /run/hostler/hostler.sock: %w", client.ErrNotRunning)}
	}
	const done = "the record of this host is removed; /etc/hostler is kept\n"
	const stopped = "hostlerd stays stopped and its unit enabled: it starts with an empty record at the next boot\n"
	for name, c := range map[string]struct {
		host cleanHost
		args []string
		want outcome
		ran  []string
	}{
		"empty": {
			host: cleanHost{agent: empty()},
			want: outcome{stdout: done + stopped}, ran: []string{showsUnit, stopsAgent, cleansHost},
		},
		"without systemd and agent": {
			host: cleanHost{agent: notRunning(), without: true},
			want: outcome{stdout: done}, ran: []string{cleansHost},
		},
		"without agent but with records": {
			host: cleanHost{agent: notRunning(), without: true, left: "machine/web\nvolume/data\n"},
			want: outcome{code: 1, stderr: "hostler: cannot clean this host: it still has machine/web, volume/data\n  start the agent with `systemctl start hostlerd` and clean again, which says how to remove or keep them\n"},
			ran:  []string{cleansHost},
		},
		"the agent hangs": {
			host: cleanHost{agent: notRunning()},
			want: outcome{code: 1, stderr: "hostler: no agent answers at /run/hostler/hostler.sock: the agent is not running\n"}, ran: []string{showsUnit},
		},
		"machine and network": {
			host: cleanHost{agent: &standIn{machines: []client.Machine{running("web", "10.1.2.3")}, rows: map[string]string{"networks": `[{"name":"lan"}]`}}},
			want: outcome{code: 1, stderr: "hostler: cannot clean this host: it still has machine/web, network/lan\n  `hostler delete machine/web network/lan --wait` removes them; `hostler clean --release` keeps the instances of machines, undeclared\n"},
			ran:  []string{showsUnit},
		},
		"left by a harvest and by retain": {
			host: cleanHost{agent: &standIn{status: client.Status{
				Unknown:        []client.UnknownInstance{{Type: "lxd", Name: "old"}},
				UnknownStorage: []client.UnknownStorage{{Kind: "volume", Name: "data"}},
			}}},
			want: outcome{code: 1, stderr: "hostler: cannot clean this host: it still has lxd/old, the data of volume/data\n  `hostler adopt lxd/old` makes a machine of the instance lxd/old; declare volume/data again and delete it without `retain: true`\n"},
			ran:  []string{showsUnit},
		},
		"released": {
			host: cleanHost{agent: &standIn{machines: []client.Machine{running("web", "10.1.2.3")}, film: [][]client.Machine{{}}}},
			args: []string{"--release"},
			want: outcome{stdout: "machine/web released: its instance lives on, without the volumes and filesystems of hostler\n" + done + stopped, stderr: "[  0s] web: running 10.1.2.3\n[  0s] web: gone\n"},
			ran:  []string{showsUnit, stopsAgent, cleansHost},
		},
		"released but the network": {
			host: cleanHost{agent: &standIn{machines: []client.Machine{running("web", "10.1.2.3")}, film: [][]client.Machine{{}}, rows: map[string]string{"networks": `[{"name":"lan"}]`}}},
			args: []string{"--release"},
			want: outcome{code: 1, stdout: "machine/web released: its instance lives on, without the volumes and filesystems of hostler\n", stderr: "[  0s] web: running 10.1.2.3\n[  0s] web: gone\nhostler: cannot clean this host: it still has network/lan\n  `hostler delete network/lan --wait` removes it\n"},
			ran:  []string{showsUnit},
		},
		"declared meanwhile": {
			host: cleanHost{agent: empty(), left: "machine/web\nvolume/data\n"},
			want: outcome{code: 1, stderr: "hostler: cannot clean this host: it still has machine/web, volume/data\n  `hostler delete machine/web volume/data --wait` removes them; `hostler clean --release` keeps the instances of machines, undeclared\n"},
			ran:  []string{showsUnit, stopsAgent, cleansHost, startAgent},
		},
		"records may be missing": {
			host: cleanHost{agent: empty(), broken: errors.New("cannot run hostlerd: exit status 1: time=now level=INFO\nhostlerd: cannot clean this host: records may be missing (x)")},
			want: outcome{code: 1, stderr: "hostler: cannot clean this host: records may be missing (x)\n"},
			ran:  []string{showsUnit, stopsAgent, cleansHost, startAgent},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.host.clean(t, c.args...)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("unexpected result (-want +got):\n%s", diff)
			}
			if !slices.Equal(c.host.ran, c.ran) {
				t.Errorf("ran %q", c.host.ran)
			}
		})
	}
}
