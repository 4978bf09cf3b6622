//go:build integration

package machines

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/containerbroker/lxc/lxctest"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// mixedHost is an agent with machines of several types on one bridge.
type mixedHost struct {
	t     *testing.T
	a     *harness.Agent
	types []string
	// text declares the network and one machine of each type, named after it.
	text string
	lxc  *lxctest.Host
}

// Machines of all types on one declared bridge reach each other, each publishes a
// port of the host, and in the end nothing is left.
func TestMixedHost(t *testing.T) {
	h := newMixedHost(t, mixing)
	file := h.a.File("site", h.text)
	h.a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "9m")
	if code, out := h.a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("the second plan exited with %d:\n%s", code, out)
	}
	for n, from := range h.types {
		h.a.Run("exec", from, "--", "busybox", "sh", "-c", "busybox mkdir /tmp/served && echo "+from+" >/tmp/served/name && busybox httpd -p 8181 -h /tmp/served")
		h.served(n, from)
	}
	for _, from := range h.types {
		for n, to := range h.types {
			if from != to {
				h.reaches(from, to, n)
			}
		}
	}
	h.a.Run("delete", "declaration/site", "--wait", "--timeout", "3m")
	if left := append(h.lxc.Names(), h.lxc.Left()...); len(left) > 0 {
		t.Errorf("left of LXC: %v", left)
	}
}

func newMixedHost(t *testing.T, types []string) *mixedHost {
	t.Helper()
	t.Cleanup(harness.KeepParameters(t))
	h := &mixedHost{t: t, types: types}
	var prefix, env []string
	image := map[string]string{"lxd": "lxd:tiny", "incus": "incus:tiny", "lxc": "busybox/1"}
	for _, daemon := range []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus} {
		dir := filepath.Join(t.TempDir(), "none")
		if slices.Contains(types, daemon.Name) {
			dir = lxdtest.StartWith(t, lxdtest.Options{Daemon: daemon, Driver: "dir"}).Dir
		}
		env = append(env, daemon.Variable+"="+dir)
	}
	settings := ""
	if slices.Contains(types, "kvm") {
		prefix, image["kvm"] = kvmtest.Start(t).Prefix(), kvmtest.TinyReference(t)
		settings = "types: {kvm: {accelerator: tcg}}\n"
	}
	h.a = harness.NewAgent(t, t.TempDir())
	h.a.Env, h.a.Prefix = env, prefix
	h.a.Configure("namespace: mixed\nretry-delay: 1s\nstart-retries: 2\n" + settings)
	h.lxc = lxctest.StartBeside(t, filepath.Join(h.a.Dir, "lxc"), "mixed")
	var text strings.Builder
	text.WriteString("version: 1\nnetworks:\n  lan: {bridge: br-hmix, addresses: [10.221.9.1/24], nat: true, dhcp: true}\nmachines:\n")
	for n, kind := range types {
		fmt.Fprintf(&text, "  %s: {type: %s, image: %q, networks: {eth0: {network: lan, address: %s/24}}, publish: [{protocol: tcp, host-port: %d, port: 8181}]", kind, kind, image[kind], mixedAddress(n), mixedPort(n))
		if kind == "kvm" {
			text.WriteString(", memory: 512MiB")
		}
		text.WriteString("}\n")
	}
	h.text = text.String()
	h.a.Start()
	t.Cleanup(func() { // the network is the host's
		if !h.a.Exited() {
			_, _ = h.a.Try("delete", "declaration/site", "--wait", "--timeout", "2m")
		}
	})
	return h
}

// mixedAddress and mixedPort are the address and the published port of a type's
// machine.
func mixedAddress(n int) string { return fmt.Sprintf("10.221.9.%d", 10+n) }

func mixedPort(n int) int { return 18180 + n }

// reaches waits until a machine gets answers of another, by ICMP and by TCP.
func (h *mixedHost) reaches(from, to string, n int) {
	h.t.Helper()
	harness.Wait(h.t, from+" to reach "+to, time.Minute, func() error {
		if _, err := h.a.Try("exec", from, "--", "busybox", "ping", "-c", "1", "-W", "2", mixedAddress(n)); err != nil {
			return err
		}
		out, err := h.a.Try("exec", from, "--", "busybox", "sh", "-c", "printf 'GET /name HTTP/1.0\r\n\r\n' | busybox nc -w 5 "+mixedAddress(n)+" 8181")
		if err == nil && !strings.HasSuffix(out, "\r\n\r\n"+to+"\n") {
			err = fmt.Errorf("%s answers %q", to, out)
		}
		return err
	})
}

// served waits until a machine answers at its published port of the host.
func (h *mixedHost) served(n int, name string) {
	h.t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, host := range []string{"127.0.0.1", "10.221.9.1"} {
		harness.Wait(h.t, name+"'s published port", time.Minute, func() error {
			resp, err := client.Get(fmt.Sprintf("http://%s:%d/name", host, mixedPort(n)))
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			if err == nil && strings.TrimSpace(string(text)) != name {
				err = fmt.Errorf("%s answers %s %q", name, resp.Status, text)
			}
			return err
		})
	}
}
