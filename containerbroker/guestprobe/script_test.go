package guestprobe

import (
	"context"
	"os/exec"
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
				"mount -t tmpfs guest /run && mkdir /run/cloud-init && r=/run/cloud-init/result.json && "+c.make+`; exec sh -c "$0" sh 0`, Script)
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
