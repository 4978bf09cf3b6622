package guestprobe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file that the guest puts in place of cloud-init's result does not block the
// script: it reads regular files only.
// Attack: guests
func TestScriptWaitsForNoFileOfTheGuest(t *testing.T) {
	for name, c := range map[string]struct{ make, want string }{
		"a file":           {"echo '{\"v1\": {}}' >$r", "result\n{\"v1\": {}}\n"},
		"a fifo":           {"mkfifo $r", ""},
		"a link to a fifo": {"mkfifo /run/fifo; ln -s /run/fifo $r", ""},
		"a device":         {"ln -s /dev/zero $r", ""},
		"a folder":         {"mkdir $r", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			// A mount namespace stands for the guest.
			command := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c",
				"mount -t tmpfs guest /run && mkdir /run/cloud-init && r=/run/cloud-init/result.json && "+c.make+`; exec sh -c "$0" sh 0`, script)
			command.WaitDelay = time.Second
			out, err := command.Output()
			if err != nil {
				t.Fatalf("%v after %v: %s", err, ctx.Err(), out)
			}
			_, report, _ := strings.Cut("\n"+string(out), "\nresult\n")
			if strings.Contains(string(out), "\nresult\n") != (c.want != "") || !strings.HasPrefix("result\n"+report, c.want) {
				t.Errorf("got %s", out)
			}
		})
	}
}

// A systemd that has just started has the name under which it was started, e.g.
// init. Its program shows that it is systemd.
func TestScriptKnowsSystemdByItsProgram(t *testing.T) {
	const last = "echo \"init $init\"\n"
	beginning, _, found := strings.Cut(script, last)
	if !found {
		t.Fatalf("the script has no %s", last)
	}
	for _, c := range []struct{ name, comm, exe, want string }{
		{"systemd", "systemd", "/usr/lib/systemd/systemd", "systemd"},
		{"systemd, just started", "init", "/usr/lib/systemd/systemd", "systemd"},
		{"systemd, upgraded since", "init", "/usr/lib/systemd/systemd (deleted)", "systemd"},
		{"another init", "init", "/usr/sbin/init", "init"},
		{"a program of systemd's", "init", "/usr/lib/systemd/systemd-journald", "init"},
		{"a hidden program", "systemd", "", "systemd"},
	} {
		process := t.TempDir()
		if err := os.WriteFile(filepath.Join(process, "comm"), []byte(c.comm+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.exe != "" {
			if err := os.Symlink(c.exe, filepath.Join(process, "exe")); err != nil {
				t.Fatal(err)
			}
		}
		script := strings.ReplaceAll(beginning+last, "/proc/1/", process+"/")
		out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
		if string(out) != "init "+c.want+"\n" || err != nil {
			t.Errorf("%s: %q, %v", c.name, out, err)
		}
	}
}
