//go:build integration

package networks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// docker is a firewall as Docker makes it, with a foreign bridge, route and
// parameter.
const docker = `
ip link add br-foreign type bridge; ip link set br-foreign up; ip addr add 172.31.0.1/24 dev br-foreign
ip route add 203.0.113.0/24 via 172.31.0.9; ip link set br-foreign alias somebody
nft -f - <<END
table ip filter {
	chain DOCKER-USER {
		return
	}
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
		jump DOCKER-USER
		iifname "docker0" accept
	}
}
table inet mine {
	chain c {
		counter
	}
}
END`

// Foreign objects are the same before, during and after a network, and a foreign
// chain that blocks declared traffic is reported with its remedy.
func TestForeignNetworkObjectsStay(t *testing.T) {
	a, n := bare(t)
	sh(n, docker)
	look := func() string { return sh(n, "("+world+") | grep -v 'fe80\\|ff00'") }
	before := look()
	a.Apply("site", alone)
	harness.Wait(t, "the finding", 5*time.Second, func() error {
		status, doctor, show := a.Run("status"), doctor(a), a.Run("show", "network/lan")
		for name, text := range map[string]string{"status": status, "doctor": doctor, "show": show} {
			for _, word := range []string{"FORWARD", "ip filter", "iptables -I DOCKER-USER -i br-hlan -j ACCEPT"} {
				if !strings.Contains(text, word) {
					return fmt.Errorf("%s does not say %q:\n%s", name, word, text)
				}
			}
		}
		return nil
	})
	if code, out := a.Exit("doctor", "--strict"); code != 1 {
		t.Errorf("doctor --strict exits with %d:\n%s", code, out)
	}
	// The mend mends it.
	sh(n, "nft insert rule ip filter DOCKER-USER iifname br-hlan accept; nft insert rule ip filter DOCKER-USER oifname br-hlan accept")
	harness.Wait(t, "the finding to go", 5*time.Second, func() error {
		if out := doctor(a); strings.Contains(out, "FORWARD") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	sh(n, "nft flush chain ip filter DOCKER-USER; nft add rule ip filter DOCKER-USER return")
	// But for the host's forwarding, all that was there is there still.
	for line := range strings.Lines(difference(before, look())) {
		if strings.HasPrefix(line, "-") && line != "-0\n" {
			t.Errorf("with a network there is no more: %s", line)
		}
	}
	gone(t, a)
	if d := difference(before, look()); d != "" {
		t.Errorf("before and after differ:\n%s", d)
	}
}

func doctor(a *harness.Agent) string {
	_, out := a.Exit("doctor")
	return out
}

// Addresses, names and ports that are in use on the host are refused with the
// reason, and nothing changes.
func TestUnavailableResourcesAreRefused(t *testing.T) {
	a, n := bare(t)
	sh(n, docker)
	sh(n, "busybox nc -l -p 8088 </dev/zero >/dev/null 2>&1 & echo $! >"+a.Dir+"/nc; for i in 1 2 3 4 5 6 7 8 9; do grep -q :1F98 /proc/net/tcp* && break; sleep 0.1; done")
	defer sh(n, "kill $(cat "+a.Dir+"/nc) 2>/dev/null || true")
	before := sh(n, world)
	for want, yaml := range map[string]string{
		"reaches 172.31.0.0/24 over br-foreign":  "networks: {lan: {bridge: br-hlan, addresses: [172.31.0.129/25]}}",
		"reaches 203.0.113.0/24 over br-foreign": "networks: {lan: {bridge: br-hlan, addresses: [203.0.113.1/24]}}",
		"is a network device of this host":       "networks: {lan: {bridge: eth9}}",
		"tcp port 8088 of the host is in use": `networks: {lan: {bridge: br-hlan, addresses: [10.221.7.1/24]}}
machines: {web: {type: lxd, image: "lxd:tiny", networks: {eth0: {network: lan}}, publish: [{protocol: tcp, host-port: 8088, port: 80}]}}`,
	} {
		if strings.Contains(yaml, "eth9") {
			sh(n, "ip link add eth9 type ifb 2>/dev/null || ip link add eth9 type veth peer name eth10")
			before = sh(n, world)
		}
		file := a.File("site", "version: 1\n"+yaml+"\n")
		for _, verb := range []string{"plan", "apply"} {
			if code, out := a.Exit(verb, "-f", file); code != 1 || !strings.Contains(out, want) {
				t.Errorf("%s exits with %d and does not say %q:\n%s", verb, code, want, out)
			}
		}
	}
	if d := difference(before, sh(n, world)); d != "" {
		t.Errorf("a refusal changed something:\n%s", d)
	}
	if out := a.Run("get", "all", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("something is declared: %s", out)
	}
	// A foreign bridge of the name may go; so it is reported and waited for.
	sh(n, "ip link set br-foreign alias ''")
	if code, out := a.Exit("apply", "--allow", "destroy", "-f", a.File("site", "version: 1\nnetworks: {lan: {bridge: br-foreign}}\n")); code != 1 || !strings.Contains(out, "not hostler's") {
		t.Errorf("the conflict is not told; exit %d:\n%s", code, out)
	}
	harness.Wait(t, "the conflict", 5*time.Second, func() error {
		if got := networks(t, a)["lan"]; got.Status != "error" || !strings.Contains(got.Message, "br-foreign") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	sh(n, "ip link delete br-foreign")
	harness.Wait(t, "the network", 5*time.Second, func() error {
		if got := networks(t, a)["lan"]; got.Status != "ready" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// If another process made a bridge while the host forwarded for a network, the
// host goes on forwarding, and an event reports it.
func TestForwardingIsLeftToOthers(t *testing.T) {
	a, n := bare(t)
	sh(n, "echo 0 >/proc/sys/net/ipv4/ip_forward; ip link add br-first type bridge; ip addr add 172.31.0.1/24 dev br-first; ip link set br-first up")
	forwards := func() string { return strings.TrimSpace(sh(n, "cat /proc/sys/net/ipv4/ip_forward")) }
	for _, c := range []struct{ do, want string }{
		{"true", "0"},
		{"ip link add br-later type bridge; ip addr add 172.31.1.1/24 dev br-later; ip link set br-later up", "1"},
	} {
		a.Apply("site", alone)
		sh(n, c.do)
		gone(t, a)
		if got := forwards(); got != c.want {
			t.Errorf("after `%s` ip_forward is %s, want %s", c.do, got, c.want)
		}
		kept := strings.Contains(a.Run("events"), "net/ipv4/ip_forward keeps the value that hostler set: br-later appeared since")
		if kept != (c.want == "1") {
			t.Errorf("the kept value has an event: %v", kept)
		}
	}
}
