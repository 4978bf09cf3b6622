//go:build integration

package networks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// world is what the host has of networks, line by line: links with their
// stamps, addresses, routes, rules, parameters and files of /etc.
const world = `
ip -o link | sed 's/^[0-9]*: //; s/@if[0-9]*//; s/ state [A-Z]*//'
ip -o addr | sed 's/^[0-9]*: //; s/ valid_lft.*//; s/ tentative//'
ip route show table all; ip -6 route show table all | sed 's/ expires [0-9a-z]*//'
nft -s list ruleset
cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding
find /etc -xdev -type f ! -path '/etc/sysctl.d/60-hostler.conf' -exec md5sum {} + | sort -k2`

// notOurs is in the lines about links that come and go with machines of LXD
// and of other programs, whatever is declared.
var notOurs = regexp.MustCompile(`lxt|htest|virbr|veth|vnet|hn[0-9a-f]{12}|kv[ct]|LIBVIRT|fe80|ff00`)

func look(t *testing.T) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(harness.Run(t, "sh", "-c", world)) {
		if !notOurs.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// difference are the lines that only one of two texts has.
func difference(a, b string) string {
	var out strings.Builder
	for sign, pair := range map[string][2]string{"-": {a, b}, "+": {b, a}} {
		other := map[string]bool{}
		for line := range strings.Lines(pair[1]) {
			other[line] = true
		}
		for line := range strings.Lines(pair[0]) {
			if !other[line] {
				out.WriteString(sign + line)
			}
		}
	}
	return out.String()
}

// N3 N6 Z12: the example as it stands: both machines reach the archive, the published
// port answers on the host and to a stranger beyond it, the second apply does
// nothing, and in the end nothing is left.
func TestExample(t *testing.T) {
	outside := nettest.New(t)
	stranger(t, outside, "hstranger", "198.51.100.1", "198.51.100.2")
	s := lxdtest.Start(t)
	t.Cleanup(harness.KeepParameters(t))
	harness.RaiseLimits(t)
	a := harness.NewAgent(t, s.Dir)
	a.Configure("namespace: nets\n")
	keep := a.KeepImages()
	before := look(t)
	a.Start()
	clean(t, a)
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "examples", "network.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := a.File("site", string(text))
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "9m")
	keep()
	if code, out := a.Exit("apply", "--allow", "destroy", "-f", file, "--wait"); code != 0 || !strings.Contains(out, "no changes") {
		t.Errorf("the second apply exited with %d:\n%s", code, out)
	}
	if got := networks(t, a)["lan"].Guests; got["web/eth0"][0] != "10.20.0.10/24" || got["worker/eth0"][0] != "10.20.0.2/24" {
		t.Errorf("%v", got)
	}
	for _, machine := range []string{"web", "worker"} {
		out := a.Run("exec", machine, "--", "sh", "-c", "apt-get -o Acquire::Retries=2 update 2>&1; echo; ip -4 -o addr show dev eth0")
		if !strings.Contains(out, "Reading package lists...") || strings.Contains(out, "Err:") || strings.Contains(out, "W:") {
			t.Errorf("apt-get update in %s:\n%s", machine, out)
		}
	}
	for what, get := range map[string]func() (string, error){
		"the host at 127.0.0.1":  func() (string, error) { return harness.Try(nil, "curl", "-sS", "-m", "5", "http://127.0.0.1:8080/") },
		"the host at the bridge": func() (string, error) { return harness.Try(nil, "curl", "-sS", "-m", "5", "http://10.20.0.1:8080/") },
		"a stranger beyond a link": func() (string, error) {
			return outside.Run("/usr/bin/curl", "-sS", "-m", "5", "http://198.51.100.1:8080/"), nil
		},
		"a neighbour, by the host": func() (string, error) {
			return a.Try("exec", "worker", "--", "python3", "-c", fetch("http://10.20.0.1:8080/"))
		},
		"a neighbour, by its name": func() (string, error) { return a.Try("exec", "worker", "--", "python3", "-c", fetch("http://web/")) },
		"itself, at its own address": func() (string, error) {
			return a.Try("exec", "web", "--", "python3", "-c", fetch("http://10.20.0.10/"))
		},
	} {
		harness.Wait(t, what, 20*time.Second, func() error {
			out, err := get()
			if err == nil && !strings.Contains(out, "hostler works") {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
	gone(t, a)
	if d := difference(before, look(t)); d != "" {
		t.Errorf("before and after differ:\n%s", d)
	}
	if pid := dnsmasq(a); pid != "" {
		t.Errorf("dnsmasq still runs as %s", pid)
	}
	if left, _ := filepath.Glob(a.Dir + "/state/dhcp/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func fetch(url string) string {
	return "import urllib.request; print(urllib.request.urlopen('" + url + "', timeout=5).read().decode())"
}

// stranger joins a network namespace to the host by a pair of devices.
func stranger(t *testing.T, n *nettest.Namespace, link, host, address string) {
	t.Helper()
	harness.Run(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", n.Path())
	t.Cleanup(func() { _, _ = harness.Try(nil, "ip", "link", "delete", link) })
	harness.Run(t, "ip", "addr", "add", host+"/24", "dev", link)
	harness.Run(t, "ip", "link", "set", link, "up")
	n.IP("addr add " + address + "/24 dev eth0")
	n.IP("link set eth0 up")
	n.IP("route add default via " + host)
}
