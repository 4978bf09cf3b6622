package api

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
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
func TestConfirmBelongsToTheChange(t *testing.T) {
	network := func(mtu int) spec.Declaration {
		return spec.Declaration{Version: 1, Name: "net", Networks: map[string]spec.Network{"lan": {Bridge: "br-lan", MTU: mtu}}}
	}
	apply := func(before *declaredState, d spec.Declaration, confirm spec.Duration) spec.NetworkRecord {
		t.Helper()
		if err := before.put([]document{{name: "net", source: spec.SourceApply, decl: d, confirm: confirm}}...); err != nil {
			t.Fatal(err)
		}
		var r spec.NetworkRecord
		for _, g := range before.dependencies {
			if err := json.Unmarshal(g.now, &r); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	w, err := newDeclaredState(nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := apply(w, network(1400), spec.Duration(time.Minute)); r.Confirm != spec.Duration(time.Minute) {
		t.Errorf("a new network waits %s", r.Confirm)
	}
	for _, g := range w.dependencies {
		g.was = g.now
	}
	if r := apply(w, network(1400), 0); r.Confirm != spec.Duration(time.Minute) {
		t.Errorf("the same network waits %s", r.Confirm)
	}
	if r := apply(w, network(1500), 0); r.Confirm != 0 {
		t.Errorf("a changed network waits %s", r.Confirm)
	}
	for text, good := range map[string]bool{"": true, "5m": true, "1s": true, "0s": false, "-5m": false, "25h": false, "soon": false} {
		if err := confirming([]document{{}}, text); (err == nil) != good {
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
