package api

import (
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"hostler/agent/declare"
)

func TestConfirmAndRevert(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/v1/guard/confirm", "/v1/guard/revert"} {
		b.host.armed = ""
		if w := b.asRoot("POST", path, ""); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "nothing waits") {
			t.Errorf("%s with nothing armed: %d %s", path, w.Code, w.Body)
		}
		b.host.armed = "network/lan"
		if w := b.asRoot("POST", path, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"network/lan"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// The time for a confirmation applies to a single change.
// The time to wait for a confirmation has bounds.
func TestBoundsOfConfirm(t *testing.T) {
	for text, good := range map[string]bool{"": true, "5m": true, "1s": true, "0s": false, "-5m": false, "25h": false, "soon": false} {
		if err := confirming([]declare.Document{{}}, text); (err == nil) != good {
			t.Errorf("--confirm %q: %v", text, err)
		}
	}
}

// The address of an SSH client is found behind sudo as well.
func TestWhereThePersonCameFrom(t *testing.T) {
	for env, want := range map[string]string{
		"SSH_CONNECTION=198.51.100.7 50022 192.0.2.10 22":   "198.51.100.7",
		"SSH_CONNECTION=fe80::1%eth0 50022 fe80::2%eth0 22": "fe80::1",
		"SSH_CONNECTION=nonsense":                           "invalid IP",
		"OTHER=1":                                           "invalid IP",
	} {
		// The child itself has a clean environment.
		cmd := exec.Command("/bin/sh", "-c", "env -i /bin/sleep 60 & echo $!; wait")
		cmd.Env = []string{env, "PATH=/bin:/usr/bin"}
		if os.Getenv("SSH_CONNECTION") != "" && !strings.HasPrefix(env, "SSH") {
			continue // the test itself runs under ssh
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 16)
		n, err := out.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
		if err != nil {
			t.Fatal(err)
		}
		if got := clientOf(int32(pid)).String(); got != want {
			t.Errorf("%s: the client is %s", env, got)
		}
		child, _ := os.FindProcess(pid)
		_ = child.Kill()
		_ = cmd.Wait()
	}
}
